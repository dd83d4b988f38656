/* See cl_guard.h. */
#include "cl_guard.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "cl_maps.h"
#include "cl_pool.h"

/* A run of pages that get the same protection in one call. */
struct run {
    uint64_t start, end;
};

static int
protect(const struct run *run, int access)
{
    if (run->start == run->end) {
        return 0;
    }
    return mprotect((void *)(uintptr_t)run->start,
                    (size_t)(run->end - run->start), access) == 0
               ? 0
               : -errno;
}

/* Append a page to the run, or deal with the run and begin another. */
static int
extend(struct run *run, uint64_t page, uint64_t size, int access)
{
    int err = 0;
    if (run->end != page) {
        err = protect(run, access);
        run->start = page;
    }
    run->end = page + size;
    return err;
}

static bool
is_data(const struct cl_map *map)
{
    return (map->perms & CL_MAP_WRITE) && !(map->perms & CL_MAP_EXEC) &&
           !(map->perms & CL_MAP_SHARED) && !cl_map_has_file(map) &&
           (map->path_len == 0 ||
            (map->path_len > 6 && memcmp(map->path, "[anon:", 6) == 0));
}

static bool
is_armed(const struct cl_slot *slot)
{
    return slot != NULL && atomic_load(&slot->state) == CL_SLOT_ARMED;
}

/* Whether any page of the pool is armed. If so, it is mapped; the list of
 * mappings may be older than an unmapping. */
static bool
any_armed(const struct cl_record *record, uint64_t pool)
{
    for (uint64_t at = pool; at < pool + CL_POOL_SIZE;
         at += record->header->page_size) {
        if (is_armed(cl_record_slot(record, at))) {
            return true;
        }
    }
    return false;
}

static int
guard_map(struct cl_record *record, const struct cl_map *map)
{
    uint64_t page = record->header->page_size;
    struct run run = {0, 0};
    uint64_t pool = (map->start + CL_POOL_SIZE - 1) & ~(CL_POOL_SIZE - 1ull);
    for (; pool + CL_POOL_SIZE <= map->end; pool += CL_POOL_SIZE) {
        if (!any_armed(record, pool) ||
            !cl_pool_plausible((const void *)(uintptr_t)pool)) {
            continue;
        }
        for (uint64_t at = pool; at < pool + CL_POOL_SIZE; at += page) {
            struct cl_slot *slot = cl_record_slot(record, at);
            if (!is_armed(slot)) {
                continue;
            }
            slot->flags |= CL_FAULT_GUARD;
            int err = extend(&run, at, page, PROT_READ);
            if (err != 0) {
                return err;
            }
        }
    }
    return protect(&run, PROT_READ);
}

int
cl_guard_set(struct cl_record *record)
{
    const struct cl_record_header *header = record->header;
    const char *cursor = (const char *)header + header->maps_start.at;
    const char *end = cursor + header->maps_start_len;
    struct cl_map map;
    int err;
    if (header->page_size > CL_POOL_SIZE) {
        return -ENOTSUP; /* a page would hold several pools */
    }
    while ((err = cl_maps_next(&cursor, end, &map)) == 1) {
        if (is_data(&map)) {
            err = guard_map(record, &map);
            if (err != 0) {
                return err;
            }
        }
    }
    return err;
}

static void
clear_range(struct cl_record *record, const struct cl_record_range *range)
{
    uint64_t page = record->header->page_size;
    struct run run = {0, 0};
    for (uint64_t at = range->start; at < range->end; at += page) {
        const struct cl_slot *slot = cl_record_slot(record, at);
        if (slot != NULL && (slot->flags & CL_FAULT_GUARD)) {
            extend(&run, at, page, PROT_READ | PROT_WRITE);
        }
    }
    protect(&run, PROT_READ | PROT_WRITE);
}

void
cl_guard_clear(struct cl_record *record)
{
    const struct cl_record_header *header = record->header;
    const struct cl_record_range *ranges =
        (const void *)((const char *)header + header->ranges.at);
    for (uint64_t i = 0; i < header->nranges; i++) {
        clear_range(record, &ranges[i]);
    }
}

bool
cl_guard_lift(struct cl_record *record, uint64_t address)
{
    const struct cl_slot *slot = cl_record_slot(record, address);
    if (slot == NULL || !(slot->flags & CL_FAULT_GUARD)) {
        return false;
    }
    uint64_t page = record->header->page_size;
    uint64_t start = address & ~(page - 1);
    struct run run = {start, start + page};
    if (protect(&run, PROT_READ | PROT_WRITE) != 0) {
        /* No more mappings: open everything, which merges them again. */
        cl_record_count(record, CL_COUNT_UNPROTECTED, 1);
        cl_guard_clear(record);
    }
    return true;
}
