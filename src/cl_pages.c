#include "cl_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cl_image.h"
#include "cl_pagemap.h"
#include "cl_pool.h"

#define CHUNK 8192u /* page-map entries a read: 64 KiB */

static bool
path_starts(const struct cl_map *map, const char *prefix)
{
    size_t len = strlen(prefix);
    return map->path_len >= len && memcmp(map->path, prefix, len) == 0;
}

int
cl_map_kind(const struct cl_map *map, bool follows_image)
{
    if ((map->perms & CL_MAP_SHARED) || path_starts(map, "[v")) {
        return -1;
    }
    if (cl_map_is(map, "[heap]")) {
        return CL_KIND_HEAP;
    }
    if (path_starts(map, "[stack")) {
        return CL_KIND_STACK;
    }
    if (path_starts(map, "/anon_hugepage") || path_starts(map, "/memfd:") ||
        path_starts(map, "/dev/zero") || path_starts(map, "/SYSV")) {
        return CL_KIND_ANONYMOUS;
    }
    if (cl_map_has_file(map)) {
        return CL_KIND_IMAGE;
    }
    if (follows_image && map->path_len == 0) {
        return CL_KIND_IMAGE;
    }
    return CL_KIND_ANONYMOUS;
}

static int
append_granule(struct cl_pages *pages, uint64_t number,
               struct cl_granule **out)
{
    size_t n = cl_pages_count(pages);
    if (n > 0) {
        struct cl_granule *last = cl_pages_granule(pages, n - 1);
        if (last->number == number) {
            *out = last;
            return 0;
        }
    }
    int err =
        cl_buf_reserve(&pages->granules, (n + 1) * sizeof(struct cl_granule));
    if (err < 0) {
        return err;
    }
    pages->granules.len = (n + 1) * sizeof(struct cl_granule);
    *out = cl_pages_granule(pages, n);
    memset(*out, 0, sizeof **out);
    (*out)->number = number;
    return 0;
}

/* A guard (MADV_GUARD_INSTALL, under the stacks of threads) looks swapped out,
 * but nothing is there. */
static inline bool
is_populated(uint64_t entry)
{
    return (entry & (CL_PM_PRESENT | CL_PM_SWAPPED)) && !(entry & CL_PM_GUARD);
}

static inline uint8_t
byte_of(uint64_t entry)
{
    return (uint8_t)((entry >> 63 & 1) | (entry >> 61 & 2) |
                     (entry >> 59 & 4) | (entry >> 53 & 8));
}

/* Fold `n` entries from page number `first` into granules. *populated counts
 * entries that are not holes. */
static int
fold(struct cl_pages *pages, uint64_t first, const uint64_t *entries, size_t n,
     uint8_t kind, size_t *populated)
{
    struct cl_granule *granule = NULL;
    uint8_t kind_bits = (uint8_t)(kind << CL_PAGE_KIND_SHIFT);
    uint64_t own = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_populated(entries[i])) {
            continue;
        }
        uint64_t page = first + i;
        if (granule == NULL || granule->number != page / CL_GRANULE) {
            int err = append_granule(pages, page / CL_GRANULE, &granule);
            if (err < 0) {
                return err;
            }
        }
        uint8_t byte = byte_of(entries[i]);
        granule->pages[page % CL_GRANULE] = byte | kind_bits;
        own += cl_page_is_own(byte);
        ++*populated;
    }
    pages->own += own;
    return 0;
}

static size_t
count_exclusive(const uint64_t *entries, size_t n, size_t *populated)
{
    size_t exclusive = 0;
    for (size_t i = 0; i < n; i++) {
        *populated += is_populated(entries[i]);
        exclusive += (entries[i] & (CL_PM_PRESENT | CL_PM_EXCLUSIVE)) ==
                     (CL_PM_PRESENT | CL_PM_EXCLUSIVE);
    }
    return exclusive;
}

/* Read one mapping; kind -1 is MAP_SHARED. An empty chunk is taken as the
 * start of a large hole, which is skipped by a scan instead of being read. */
static int
read_mapping(struct cl_pages *pages, int fd, const struct cl_map *map,
             int kind, uint64_t *entries)
{
    size_t page_size = cl_page_size();
    uint64_t addr = map->start;
    while (addr < map->end) {
        uint64_t left = (map->end - addr) / page_size;
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        int err = cl_pagemap_read(fd, addr, n, entries);
        if (err < 0) {
            return err == -EFAULT ? 0 : err;
        }
        size_t populated = 0;
        if (kind < 0) {
            pages->shared_memory += count_exclusive(entries, n, &populated);
        } else {
            err = fold(pages, addr / page_size, entries, n, (uint8_t)kind,
                       &populated);
        }
        if (err < 0) {
            return err;
        }
        addr += n * page_size;
        if (populated == 0 && addr < map->end) {
            uint64_t next;
            if (cl_pagemap_next(fd, addr, map->end, &next) == 0) {
                addr = next;
            }
        }
    }
    return 0;
}

/* What the mappings so far say about the next one. */
struct image {
    pid_t pid;
    int mem;        /* /proc/PID/mem, opened when first wanted; -1: not yet */
    uint64_t start; /* of the mapping of the file's first page */
    uint64_t data;  /* the end of the file's written mapping, or 0 */
};

static void
image_next(struct image *image, const struct cl_map *map)
{
    bool of_file = cl_map_kind(map, false) == CL_KIND_IMAGE;
    if (of_file && map->offset == 0) {
        image->start = map->start;
    }
    image->data = of_file && (map->perms & CL_MAP_WRITE) ? map->end : 0;
}

/* The end of the part of `map` that is the zero-filled tail of the image just
 * below. Other anonymous memory may follow in the same mapping, or may only
 * happen to lie there; only the image itself says. */
static uint64_t
image_tail(struct image *image, const struct cl_map *map)
{
    uint64_t end;
    if (map->start != image->data || cl_map_kind(map, true) != CL_KIND_IMAGE ||
        cl_map_has_file(map)) {
        return map->start;
    }
    if (image->mem < 0) {
        image->mem = cl_proc_open(image->pid, "mem", O_RDONLY);
    }
    if (image->mem < 0 || cl_image_end(image->mem, image->start, &end) < 0) {
        return map->end;
    }
    return end < map->start ? map->start : end < map->end ? end : map->end;
}

static void
reset(struct cl_pages *pages)
{
    pages->granules.len = 0;
    pages->own = 0;
    pages->shared_memory = 0;
}

int
cl_pages_read(pid_t pid, struct cl_pages *pages)
{
    struct cl_buf scratch = {0};
    struct image image = {pid, -1, 0, 0};
    int fd = -1;
    reset(pages);
    int err = cl_buf_reserve(&scratch, CHUNK * sizeof(uint64_t));
    if (err < 0) {
        goto done;
    }
    err = cl_proc_read(pid, "maps", &pages->maps);
    if (err < 0) {
        goto done;
    }
    fd = cl_proc_open(pid, "pagemap", O_RDONLY);
    if (fd < 0) {
        err = fd;
        goto done;
    }
    const char *cursor = pages->maps.data;
    const char *end = cursor + pages->maps.len;
    struct cl_map map;
    while ((err = cl_maps_next(&cursor, end, &map)) > 0) {
        if (path_starts(&map, "[v")) {
            continue;
        }
        struct cl_map tail = map;
        tail.end = image_tail(&image, &map);
        image_next(&image, &map);
        map.start = tail.end;
        uint64_t *entries = (uint64_t *)(void *)scratch.data;
        err = read_mapping(pages, fd, &tail, CL_KIND_IMAGE, entries);
        if (err == 0) {
            err = read_mapping(pages, fd, &map, cl_map_kind(&map, false),
                               entries);
        }
        if (err < 0) {
            goto done;
        }
    }
done:
    if (image.mem >= 0) {
        close(image.mem);
    }
    if (fd >= 0) {
        close(fd);
    }
    cl_buf_release(&scratch);
    return err;
}

void
cl_pages_release(struct cl_pages *pages)
{
    cl_buf_release(&pages->maps);
    cl_buf_release(&pages->granules);
    reset(pages);
}

size_t
cl_pages_find(const struct cl_pages *pages, uint64_t number)
{
    size_t low = 0, high = cl_pages_count(pages);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cl_pages_granule(pages, middle)->number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint8_t
cl_pages_at(const struct cl_pages *pages, uint64_t addr)
{
    uint64_t page = addr / cl_page_size();
    size_t i = cl_pages_find(pages, page / CL_GRANULE);
    if (i == cl_pages_count(pages) ||
        cl_pages_granule(pages, i)->number != page / CL_GRANULE) {
        return 0;
    }
    return cl_pages_granule(pages, i)->pages[page % CL_GRANULE];
}

int
cl_pages_put(struct cl_pages *pages, uint64_t page, uint8_t byte)
{
    struct cl_granule *granule;
    int err = append_granule(pages, page / CL_GRANULE, &granule);
    if (err == 0) {
        granule->pages[page % CL_GRANULE] = byte;
        pages->own += cl_page_is_own(byte);
    }
    return err;
}

bool
cl_walk_next(struct cl_walk *walk)
{
    uint64_t lowest = UINT64_MAX;
    for (size_t i = 0; i < walk->n; i++) {
        size_t position = walk->positions[i];
        if (position < cl_pages_count(walk->readings[i])) {
            uint64_t number =
                cl_pages_granule(walk->readings[i], position)->number;
            lowest = number < lowest ? number : lowest;
        }
    }
    if (lowest == UINT64_MAX) {
        return false;
    }
    walk->number = lowest;
    for (size_t i = 0; i < walk->n; i++) {
        size_t position = walk->positions[i];
        walk->granules[i] = NULL;
        if (position < cl_pages_count(walk->readings[i])) {
            struct cl_granule *granule =
                cl_pages_granule(walk->readings[i], position);
            if (granule->number == lowest) {
                walk->granules[i] = granule;
                walk->positions[i]++;
            }
        }
    }
    return true;
}

/* --- pools ------------------------------------------------------------- */

#define BATCH 8192u

/* Places that are to be looked at, and the pages that each speaks for. */
struct batch {
    const struct cl_pool_finder *finder;
    struct cl_buf memory;
    uint64_t *addresses; /* BATCH */
    uint8_t **pages;     /* BATCH */
    size_t n;
    size_t pages_each;
};

static int
open_batch(struct batch *batch)
{
    size_t each = sizeof *batch->addresses + sizeof *batch->pages;
    int err = cl_buf_reserve(&batch->memory, BATCH * each);
    if (err == 0) {
        batch->addresses = (uint64_t *)(void *)batch->memory.data;
        batch->pages = (uint8_t **)(void *)(batch->addresses + BATCH);
    }
    return err;
}

static int
mark_batch(struct batch *batch)
{
    if (batch->n == 0) {
        return 0;
    }
    int err = batch->finder->find(batch->finder->context, batch->addresses,
                                  batch->n);
    if (err < 0) {
        return err;
    }
    for (size_t i = 0; i < batch->n; i++) {
        for (size_t k = 0; batch->addresses[i] && k < batch->pages_each; k++) {
            uint8_t *page = &batch->pages[i][k];
            if (*page != 0) {
                *page = (uint8_t)((*page & 0x1f) | CL_KIND_PYMALLOC
                                                       << CL_PAGE_KIND_SHIFT);
            }
        }
    }
    batch->n = 0;
    return 0;
}

static bool
needs_a_look(const uint8_t *pages, const uint8_t *known, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        if (cl_page_is_own(pages[k]) && (known == NULL || known[k] == 0)) {
            /* An arena can lie right behind a bss, in one mapping with it. */
            enum cl_kind kind = cl_page_kind(pages[0]);
            return cl_page_is_own(pages[0]) && kind != CL_KIND_HEAP &&
                   kind != CL_KIND_STACK;
        }
    }
    return false;
}

static void
copy_kinds(uint8_t *pages, const uint8_t *known)
{
    for (size_t k = 0; k < CL_GRANULE; k++) {
        if (known[k] != 0) {
            pages[k] = (uint8_t)((pages[k] & 0x1f) | (known[k] & 0xe0));
        }
    }
}

int
cl_pages_mark_pools(struct cl_pages *pages, const struct cl_pages *known,
                    const struct cl_pool_finder *finder)
{
    static const struct cl_pages nothing;
    size_t page_size = cl_page_size();
    struct batch batch = {.finder = finder};
    batch.pages_each = page_size < CL_POOL_SIZE ? CL_POOL_SIZE / page_size : 1;
    struct cl_walk walk = {.n = 2,
                           .readings = {pages, known ? known : &nothing}};
    int err = open_batch(&batch);
    while (err == 0 && cl_walk_next(&walk)) {
        if (walk.granules[0] == NULL) {
            continue;
        }
        uint8_t *row = walk.granules[0]->pages;
        uint8_t *known_row = walk.granules[1] ? walk.granules[1]->pages : NULL;
        if (known_row != NULL) {
            copy_kinds(row, known_row);
        }
        for (size_t k = 0; k < CL_GRANULE && err == 0; k += batch.pages_each) {
            if (!needs_a_look(row + k, known_row ? known_row + k : NULL,
                              batch.pages_each)) {
                continue;
            }
            batch.addresses[batch.n] =
                (walk.number * CL_GRANULE + k) * page_size;
            batch.pages[batch.n++] = row + k;
            if (batch.n == BATCH) {
                err = mark_batch(&batch);
            }
        }
    }
    if (err == 0) {
        err = mark_batch(&batch);
    }
    cl_buf_release(&batch.memory);
    return err;
}

/* --- the zero page ------------------------------------------------------ */

/* The number of pages marked. */
static uint64_t
mark_zero_run(struct cl_pages *pages, const struct cl_page_run *run)
{
    size_t page_size = cl_page_size();
    uint64_t first = run->start / page_size, last = run->end / page_size;
    uint64_t own = pages->own;
    for (size_t i = cl_pages_find(pages, first / CL_GRANULE);
         i < cl_pages_count(pages); i++) {
        struct cl_granule *granule = cl_pages_granule(pages, i);
        uint64_t base = granule->number * CL_GRANULE;
        if (base >= last) {
            break;
        }
        size_t from = first > base ? (size_t)(first - base) : 0;
        size_t to =
            last - base < CL_GRANULE ? (size_t)(last - base) : CL_GRANULE;
        for (size_t k = from; k < to; k++) {
            if (cl_page_is_own(granule->pages[k])) {
                granule->pages[k] |= CL_PAGE_ZERO;
                pages->own--;
            }
        }
    }
    return own - pages->own;
}

static int
mark_zero_mapping(struct cl_pages *pages, int fd, const struct cl_map *map,
                  uint64_t *missing)
{
    struct cl_page_run runs[64];
    uint64_t addr = map->start;
    while (addr < map->end && *missing > 0) {
        uint64_t resume = map->end;
        long n = cl_pagemap_scan(fd, addr, map->end, CL_SCAN_PFNZERO, 0, runs,
                                 sizeof runs / sizeof *runs, &resume);
        if (n < 0) {
            return (int)n;
        }
        for (long i = 0; i < n; i++) {
            uint64_t marked = mark_zero_run(pages, &runs[i]);
            *missing -= marked < *missing ? marked : *missing;
        }
        addr = resume;
    }
    return 0;
}

/* Images and other small mappings have the odd zero page; a scan of the large
 * ones costs as much as reading them. */
#define SMALL_MAPPING (16ull << 20)

static int
mark_zero_pass(struct cl_pages *pages, int fd, bool small, uint64_t *missing)
{
    const char *cursor = pages->maps.data;
    const char *end = cursor + pages->maps.len;
    struct cl_map map;
    int err;
    while ((err = cl_maps_next(&cursor, end, &map)) > 0 && *missing > 0) {
        if (cl_map_kind(&map, false) < 0 ||
            (map.end - map.start < SMALL_MAPPING) != small) {
            continue;
        }
        err = mark_zero_mapping(pages, fd, &map, missing);
        if (err < 0) {
            return err;
        }
    }
    return err < 0 ? err : 0;
}

int
cl_pages_mark_zero(pid_t pid, struct cl_pages *pages, uint64_t missing)
{
    int fd = cl_proc_open(pid, "pagemap", O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    int err = mark_zero_pass(pages, fd, true, &missing);
    if (err == 0) {
        err = mark_zero_pass(pages, fd, false, &missing);
    }
    close(fd);
    return err;
}
