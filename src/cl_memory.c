/* See cl_memory.h. */
#include "cl_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cl_pagemap.h"
#include "cl_proc.h"

#define GC_HEAD 16
#define PREHEADER 16
#define GC_FLAGS 7u
/* More than any true count; less than what a pointer looks like. */
#define MAX_COUNT (1ull << 40)
#define LOW_WORD 0xffffffffull

int
cl_memory_open(struct cl_memory *memory, pid_t pid)
{
    int fd = cl_proc_open(pid, "mem", O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    memory->fd = fd;
    int map = cl_proc_open(pid, "pagemap", O_RDONLY);
    memory->map = map > 0 ? map : 0;
    memory->page = cl_page_size();
    int err = cl_buf_reserve(&memory->pages, CL_MEMORY_PAGES * memory->page);
    if (err < 0) {
        cl_memory_close(memory);
    }
    return err;
}

void
cl_memory_close(struct cl_memory *memory)
{
    if (memory->fd > 0) {
        close(memory->fd);
    }
    if (memory->map > 0) {
        close(memory->map);
    }
    memory->fd = memory->map = 0;
    cl_buf_release(&memory->pages);
}

uint64_t
cl_memory_page(const struct cl_memory *memory)
{
    return memory->page;
}

/* The page with that number, from what is kept or read now; NULL: not mapped.
 * A heap is looked at object by object, each naming others elsewhere: without
 * this a system call for every pointer. */
static const unsigned char *
page_at(struct cl_memory *memory, uint64_t number)
{
    size_t slot = number & (CL_MEMORY_PAGES - 1);
    unsigned char *bytes =
        (unsigned char *)memory->pages.data + slot * memory->page;
    if (memory->numbers[slot] != number + 1) {
        memory->numbers[slot] = number + 1;
        memory->is_mapped[slot] =
            cl_mem_read(memory->fd, number * memory->page, bytes,
                        memory->page) == 0;
    }
    return memory->is_mapped[slot] ? bytes : NULL;
}

bool
cl_memory_read(struct cl_memory *memory, uint64_t at, void *to, size_t len)
{
    unsigned char *next = to;
    if (at + len < at) {
        return false;
    }
    while (len > 0) {
        const unsigned char *page = page_at(memory, at / memory->page);
        if (page == NULL) {
            return false;
        }
        size_t offset = (size_t)(at % memory->page);
        size_t some = memory->page - offset;
        some = len < some ? len : some;
        memcpy(next, page + offset, some);
        next += some;
        at += some;
        len -= some;
    }
    return true;
}

bool
cl_memory_touched(struct cl_memory *memory, uint64_t at)
{
    uint64_t number = at / memory->page;
    uint64_t first = number & ~(uint64_t)(CL_MEMORY_ENTRIES - 1);
    if (memory->map == 0) {
        return true;
    }
    if (memory->window != first + 1) {
        if (cl_pagemap_read(memory->map, first * memory->page,
                            CL_MEMORY_ENTRIES, memory->entries) != 0) {
            memory->window = 0;
            return true;
        }
        memory->window = first + 1;
    }
    return memory->entries[number - first] & (CL_PM_PRESENT | CL_PM_SWAPPED);
}

bool
cl_memory_word(struct cl_memory *memory, uint64_t at, uint64_t *word)
{
    return cl_memory_read(memory, at, word, sizeof *word);
}

static bool
is_printable(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 32) {
            return false;
        }
    }
    return len > 0;
}

/* tp_name, or the end of it. */
static bool
read_name(struct cl_memory *memory, uint64_t at, char *name)
{
    char text[200];
    size_t got = 0;
    /* It may end just before a hole. */
    uint64_t room = memory->page - at % memory->page;
    size_t first = room < sizeof text ? (size_t)room : sizeof text;
    if (cl_memory_read(memory, at, text, first)) {
        got = first;
        if (got < sizeof text && memchr(text, 0, got) == NULL &&
            cl_memory_read(memory, at + got, text + got, sizeof text - got)) {
            got = sizeof text;
        }
    }
    const char *end = memchr(text, 0, got);
    size_t len = end == NULL ? 0 : (size_t)(end - text);
    if (!is_printable(text, len)) {
        return false;
    }
    size_t skip = len > CL_TYPE_NAME - 1 ? len - (CL_TYPE_NAME - 1) : 0;
    memset(name, 0, CL_TYPE_NAME);
    memcpy(name, text + skip, len - skip);
    return true;
}

static bool
is_metatype(struct cl_memory *memory, const struct cl_object_layout *layout,
            uint64_t at)
{
    uint64_t flags;
    return at == layout->type_type ||
           (at % 8 == 0 &&
            cl_memory_word(memory, at + layout->tp_flags, &flags) &&
            (flags & layout->flag_ready) &&
            (flags & layout->flag_type_subclass));
}

static void
read_type(struct cl_memory *memory, const struct cl_object_layout *layout,
          struct cl_type *type)
{
    uint64_t at = type->address, metatype, name, prefix = 0;
    if (!cl_memory_word(memory, at + layout->type, &metatype) ||
        !is_metatype(memory, layout, metatype) ||
        !cl_memory_word(memory, at + layout->tp_flags, &type->flags) ||
        !(type->flags & layout->flag_ready) ||
        !cl_memory_word(memory, at + layout->tp_basicsize,
                        (uint64_t *)&type->basicsize) ||
        !cl_memory_word(memory, at + layout->tp_itemsize,
                        (uint64_t *)&type->itemsize) ||
        !cl_memory_word(memory, at + layout->tp_dictoffset,
                        (uint64_t *)&type->dict_offset) ||
        !cl_memory_word(memory, at + layout->tp_weaklistoffset,
                        (uint64_t *)&type->weak_offset) ||
        !cl_memory_word(memory, at + layout->tp_name, &name) ||
        !read_name(memory, name, type->name)) {
        return;
    }
    if (type->basicsize < (int64_t)layout->header ||
        type->basicsize > (1 << 20)) {
        return;
    }
    prefix += type->flags & layout->flag_gc ? GC_HEAD : 0;
    prefix += type->flags & layout->flag_preheader ? PREHEADER : 0;
    type->prefix = (uint32_t)prefix;
    type->is_type = true;
}

/* The type at an address, from the table; NULL where there is none. */
static const struct cl_type *
type_at(struct cl_memory *memory, const struct cl_object_layout *layout,
        uint64_t at)
{
    if (at % 8 != 0 || at < memory->page || at >> 56 != 0) {
        return NULL;
    }
    uint64_t hash = (at >> 4) * 0x9e3779b97f4a7c15ull;
    struct cl_type *slot = NULL;
    for (uint32_t i = 0; i < 16; i++) {
        slot = &memory->types[((hash >> 40) + i) & (CL_TYPE_SLOTS - 1)];
        if (slot->address == at) {
            return slot->is_type ? slot : NULL;
        }
        if (slot->address == 0) {
            break;
        }
    }
    /* Full around here: the last one looked at gives way. */
    memset(slot, 0, sizeof *slot);
    slot->address = at;
    read_type(memory, layout, slot);
    return slot->is_type ? slot : NULL;
}

static bool
is_count(const struct cl_object_layout *layout, uint64_t word)
{
    if (layout->version >= 0x030e) {
        return (word & LOW_WORD) != 0; /* count, overflow, flags */
    }
    return word != 0 && word < MAX_COUNT;
}

/* Items are not counted: some types keep something else in ob_size. */
static bool
fits(const struct cl_object_layout *layout, const struct cl_type *type,
     uint64_t room)
{
    /* A compact string, and a small int, are shorter than their type's size.
     */
    if (type->flags & layout->flag_str_subclass) {
        return room >= 40;
    }
    if (type->flags & layout->flag_long_subclass) {
        return room >= 24;
    }
    /* A time without tzinfo lacks the field. */
    uint64_t least = (uint64_t)type->basicsize;
    least -= strcmp(type->name, "datetime.time") == 0 ? sizeof(uint64_t) : 0;
    return least <= room;
}

/* Whether what would be the GC head before an object is one: in no list, or in
 * one whose next entry points back. */
static bool
is_gc_head(struct cl_memory *memory, uint64_t head, const unsigned char *bytes)
{
    uint64_t next, previous, back;
    memcpy(&next, bytes, sizeof next);
    memcpy(&previous, bytes + 8, sizeof previous);
    next &= ~(uint64_t)GC_FLAGS;
    if (next == 0) {
        return (previous & ~(uint64_t)GC_FLAGS) == 0;
    }
    return cl_memory_word(memory, next + 8, &back) &&
           (back & ~(uint64_t)GC_FLAGS) == head;
}

bool
cl_object_find_in(struct cl_memory *memory,
                  const struct cl_object_layout *layout, uint64_t block,
                  const unsigned char *bytes, uint64_t size,
                  struct cl_found *found)
{
    static const uint32_t prefixes[] = {GC_HEAD, GC_HEAD + PREHEADER, 0};
    uint64_t at_first = 0;
    bool any = false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        uint64_t at = prefixes[i] + layout->debug_prefix;
        uint64_t count, address;
        if (at + layout->header > size) {
            continue;
        }
        memcpy(&count, bytes + at + layout->refcount, sizeof count);
        memcpy(&address, bytes + at + layout->type, sizeof address);
        if (!is_count(layout, count)) {
            continue;
        }
        const struct cl_type *type = type_at(memory, layout, address);
        if (type == NULL || type->prefix != prefixes[i] ||
            !fits(layout, type, size - at)) {
            continue;
        }
        /* Two candidates: one is what the block held before. The later one
         * is an object without a GC head, or has a longer prefix. */
        if (any && is_gc_head(memory, block + at_first - GC_HEAD,
                              bytes + at_first - GC_HEAD)) {
            return true;
        }
        found->object = block + at;
        found->type = *type;
        at_first = at;
        any = true;
    }
    return any;
}

bool
cl_object_find(struct cl_memory *memory, const struct cl_object_layout *layout,
               uint64_t block, uint64_t size, struct cl_found *found)
{
    unsigned char head[128] = {0};
    size_t len = size < sizeof head ? (size_t)size : sizeof head;
    if (!cl_memory_read(memory, block, head, len)) {
        return false;
    }
    return cl_object_find_in(memory, layout, block, head, size, found);
}

enum cl_field
cl_object_field(const struct cl_object_layout *layout,
                const struct cl_type *type, int64_t offset)
{
    if (offset < 0) {
        if ((type->flags & layout->flag_gc) && offset >= -GC_HEAD) {
            return CL_FIELD_GC;
        }
        if (offset >= -GC_HEAD - 8) {
            return CL_FIELD_DICT;
        }
        /* 3.11 keeps the inline values there, later ones weak references. */
        return layout->version == 0x030b ? CL_FIELD_DICT : CL_FIELD_WEAKREFS;
    }
    if (offset < (int64_t)layout->type) {
        return CL_FIELD_REFCOUNT;
    }
    if (offset < (int64_t)layout->header) {
        return CL_FIELD_TYPE;
    }
    if (type->dict_offset > 0 && offset / 8 == type->dict_offset / 8) {
        return CL_FIELD_DICT;
    }
    if (type->weak_offset > 0 && offset / 8 == type->weak_offset / 8) {
        return CL_FIELD_WEAKREFS;
    }
    return CL_FIELD_PAYLOAD;
}
