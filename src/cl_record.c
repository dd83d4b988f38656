/* See cl_record.h. */
#include "cl_record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cl_maps.h"
#include "cl_pagemap.h"
#include "cl_proc.h"

#define MAX_RANGES 65536u
#define MAX_CODES 8192u /* a power of two */
#define MAX_PROBES 64u
#define TEXT_SIZE (16u << 20)
#define SPARE_PAGES 16384u
#define CHUNK 512u /* page map entries a read */

static void *
section_data(const struct cl_record *record, const struct cl_section *section)
{
    return (char *)record->header + section->at;
}

static struct cl_record_range *
ranges_of(const struct cl_record *record)
{
    return section_data(record, &record->header->ranges);
}

static struct cl_slot *
slots_of(const struct cl_record *record)
{
    return section_data(record, &record->header->slots);
}

/* Whether pages of this mapping can be inherited copy-on-write. */
static bool
can_inherit(const struct cl_map *map)
{
    if (map->perms & CL_MAP_SHARED) {
        return false;
    }
    if (!(map->perms & (CL_MAP_READ | CL_MAP_WRITE))) {
        return false;
    }
    return !cl_map_is(map, "[vvar]") && !cl_map_is(map, "[vdso]") &&
           !cl_map_is(map, "[vsyscall]") && !cl_map_is(map, "[vvar_vclock]");
}

static int
count_private_pages(uint64_t *pages, uint64_t *maps_len)
{
    struct cl_buf buf = {0};
    struct cl_map map;
    int err = cl_proc_read(getpid(), "maps", &buf);
    if (err == 0) {
        const char *cursor = buf.data, *end = buf.data + buf.len;
        uint64_t total = 0;
        while ((err = cl_maps_next(&cursor, end, &map)) == 1) {
            if (can_inherit(&map)) {
                total += (map.end - map.start) / cl_page_size();
            }
        }
        *pages = total;
        *maps_len = buf.len;
    }
    cl_buf_release(&buf);
    return err;
}

static void
lay_out(uint64_t *at, struct cl_section *section, uint64_t capacity)
{
    uint64_t page = cl_page_size();
    section->at = *at;
    section->capacity = (capacity + page - 1) / page * page;
    *at += section->capacity;
}

int
cl_record_create(struct cl_record *record, enum cl_record_mode mode,
                 const char *path)
{
    uint64_t pages, maps_len;
    record->header = NULL;
    record->fd = -1;
    int err = count_private_pages(&pages, &maps_len);
    if (err != 0) {
        return err;
    }
    struct cl_record_header plan = {
        .magic = CL_RECORD_MAGIC,
        .version = CL_RECORD_VERSION,
        .header_size = sizeof plan,
        .slot_size = sizeof(struct cl_slot),
        .code_size = sizeof(struct cl_code),
        .page_size = cl_page_size(),
        .mode = mode,
    };
    struct cl_section head;
    uint64_t at = 0, maps_room = 2 * maps_len + (64u << 10);
    lay_out(&at, &head, sizeof plan);
    lay_out(&at, &plan.ranges, MAX_RANGES * sizeof(struct cl_record_range));
    lay_out(&at, &plan.maps_start, maps_room);
    lay_out(&at, &plan.maps_stop, maps_room);
    lay_out(&at, &plan.codes, MAX_CODES * sizeof(struct cl_code));
    lay_out(&at, &plan.text, TEXT_SIZE);
    lay_out(&at, &plan.slots,
            (2 * pages + SPARE_PAGES) * sizeof(struct cl_slot));
    plan.size = at;

    int fd = path == NULL
                 ? memfd_create("cowlab-record", MFD_CLOEXEC)
                 : open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    /* Sparse: a page of it exists once it is written to. */
    void *memory = MAP_FAILED;
    if (ftruncate(fd, (off_t)at) == 0) {
        memory = mmap(NULL, at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (memory == MAP_FAILED) {
        err = -errno;
        close(fd);
        if (path != NULL) {
            unlink(path);
        }
        return err;
    }
    memcpy(memory, &plan, sizeof plan);
    record->header = memory;
    record->fd = fd;
    return 0;
}

void
cl_record_release(struct cl_record *record)
{
    if (record->header != NULL) {
        munmap(record->header, record->header->size);
        close(record->fd);
    }
    record->header = NULL;
    record->fd = -1;
}

int
cl_record_keep_maps(struct cl_record *record, struct cl_section *section,
                    uint64_t *len)
{
    struct cl_buf buf = {0};
    int err = cl_proc_read(getpid(), "maps", &buf);
    if (err == 0) {
        size_t keep = buf.len;
        if (keep > section->capacity) {
            /* Whole lines only. */
            const char *last =
                memrchr(buf.data, '\n', (size_t)section->capacity);
            keep = last == NULL ? 0 : (size_t)(last - buf.data) + 1;
        }
        memcpy(section_data(record, section), buf.data, keep);
        *len = keep;
    }
    cl_buf_release(&buf);
    return err;
}

static int
arm_range(struct cl_record *record, int fd,
          const struct cl_record_range *range)
{
    uint64_t entries[CHUNK], page = record->header->page_size;
    struct cl_slot *slot = slots_of(record) + range->first;
    for (uint64_t at = range->start; at < range->end;) {
        uint64_t left = (range->end - at) / page;
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        int err = cl_pagemap_read(fd, at, n, entries);
        if (err != 0) {
            return err;
        }
        for (size_t i = 0; i < n; i++) {
            if ((entries[i] & CL_PM_PRESENT) &&
                !(entries[i] & (CL_PM_FILE | CL_PM_EXCLUSIVE))) {
                atomic_store_explicit(&slot[i].state, CL_SLOT_ARMED,
                                      memory_order_relaxed);
                record->header->inherited++;
            }
        }
        slot += n;
        at += n * page;
    }
    return 0;
}

int
cl_record_arm(struct cl_record *record)
{
    struct cl_record_header *header = record->header;
    struct cl_record_range *ranges = ranges_of(record);
    uint64_t max_slots = header->slots.capacity / sizeof(struct cl_slot);
    struct cl_map map;
    header->nranges = header->nslots = header->inherited = 0;
    int err = cl_record_keep_maps(record, &header->maps_start,
                                  &header->maps_start_len);
    if (err != 0) {
        return err;
    }
    int fd = cl_proc_open(getpid(), "pagemap", O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    const char *cursor = section_data(record, &header->maps_start);
    const char *end = cursor + header->maps_start_len;
    while ((err = cl_maps_next(&cursor, end, &map)) == 1) {
        uint64_t pages = (map.end - map.start) / header->page_size;
        /* The record itself is a shared mapping. */
        if (!can_inherit(&map)) {
            continue;
        }
        if (header->nranges == MAX_RANGES ||
            header->nslots + pages > max_slots) {
            err = -ENOSPC;
            break;
        }
        struct cl_record_range *range = &ranges[header->nranges];
        *range = (struct cl_record_range){map.start, map.end, header->nslots};
        err = arm_range(record, fd, range);
        if (err == -EFAULT || err == -ENODATA) {
            continue; /* unmapped since: nothing of it can be written */
        }
        if (err != 0) {
            break;
        }
        header->nranges++;
        header->nslots += pages;
    }
    close(fd);
    return err;
}

static uint32_t
end_of(uint64_t entry)
{
    if (entry & CL_PM_SWAPPED) {
        return CL_END_SWAPPED;
    }
    if (!(entry & CL_PM_PRESENT) || (entry & CL_PM_FILE)) {
        return CL_END_GONE;
    }
    return entry & CL_PM_EXCLUSIVE ? CL_END_EXCLUSIVE : CL_END_SHARED;
}

int
cl_record_look(struct cl_record *record, pid_t pid)
{
    const struct cl_record_header *header = record->header;
    uint64_t entries[CHUNK], page = header->page_size;
    int fd = cl_proc_open(pid, "pagemap", O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    int err = 0;
    for (uint64_t i = 0; err == 0 && i < header->nranges; i++) {
        const struct cl_record_range *range = &ranges_of(record)[i];
        struct cl_slot *slot = slots_of(record) + range->first;
        for (uint64_t at = range->start; err == 0 && at < range->end;) {
            uint64_t left = (range->end - at) / page;
            size_t n = left < CHUNK ? (size_t)left : CHUNK;
            err = cl_pagemap_read(fd, at, n, entries);
            for (size_t j = 0; err == 0 && j < n; j++) {
                if (atomic_load_explicit(&slot[j].state,
                                         memory_order_relaxed)) {
                    slot[j].end = end_of(entries[j]);
                }
            }
            slot += n;
            at += n * page;
        }
    }
    close(fd);
    return err;
}

struct cl_slot *
cl_record_slot(const struct cl_record *record, uint64_t address)
{
    const struct cl_record_range *ranges = ranges_of(record);
    uint64_t low = 0, high = record->header->nranges;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (address < ranges[middle].start) {
            high = middle;
        } else if (address >= ranges[middle].end) {
            low = middle + 1;
        } else {
            return slots_of(record) + ranges[middle].first +
                   (address - ranges[middle].start) /
                       record->header->page_size;
        }
    }
    return NULL;
}

struct cl_slot *
cl_record_claim(struct cl_record *record, uint64_t address)
{
    struct cl_slot *slot = cl_record_slot(record, address);
    uint32_t expected = CL_SLOT_ARMED;
    if (slot == NULL) {
        cl_record_count(record, CL_COUNT_OUTSIDE, 1);
        return NULL;
    }
    if (!atomic_compare_exchange_strong(&slot->state, &expected,
                                        CL_SLOT_CLAIMED)) {
        cl_record_count(
            record,
            expected == CL_SLOT_NONE ? CL_COUNT_OUTSIDE : CL_COUNT_REPEAT, 1);
        return NULL;
    }
    cl_record_count(record, CL_COUNT_FIRST, 1);
    slot->address = address;
    return slot;
}

void
cl_record_done(struct cl_slot *slot)
{
    atomic_store_explicit(&slot->state, CL_SLOT_DONE, memory_order_release);
}

static bool
keep_text(struct cl_record *record, struct cl_text *text, const void *from,
          uint32_t count, uint32_t width)
{
    struct cl_record_header *header = record->header;
    uint64_t len = (uint64_t)count * width;
    uint64_t at = atomic_fetch_add(&header->text_used, len);
    if (at + len > header->text.capacity) {
        return false;
    }
    memcpy((char *)section_data(record, &header->text) + at, from, len);
    *text = (struct cl_text){at, count, width};
    return true;
}

static bool
same_key(const struct cl_code_key *a, const struct cl_code_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

uint32_t
cl_record_intern(struct cl_record *record, const struct cl_code_view *view)
{
    struct cl_code *codes = section_data(record, &record->header->codes);
    uint64_t hash = (view->key.code >> 4) * 0x9e3779b97f4a7c15ull;
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++) {
        uint32_t i = (uint32_t)((hash >> 40) + probe) & (MAX_CODES - 1);
        struct cl_code *entry = &codes[i];
        uint32_t state = atomic_load(&entry->state);
        if (state == 2 && same_key(&entry->key, &view->key)) {
            return i + 1;
        }
        /* An entry that another thread is filling is passed by: at worst the
         * same code stands here twice. */
        if (state != 0 ||
            !atomic_compare_exchange_strong(&entry->state, &state, 1)) {
            continue;
        }
        if (!keep_text(record, &entry->lines, view->lines, view->lines_count,
                       1) ||
            !keep_text(record, &entry->filename, view->filename,
                       view->filename_count, view->filename_width) ||
            !keep_text(record, &entry->qualname, view->qualname,
                       view->qualname_count, view->qualname_width)) {
            cl_record_count(record, CL_COUNT_TEXT_FULL, 1);
            return 0; /* stays half filled: state 1 */
        }
        entry->key = view->key;
        atomic_store(&entry->state, 2);
        return i + 1;
    }
    cl_record_count(record, CL_COUNT_CODE_FULL, 1);
    return 0;
}
