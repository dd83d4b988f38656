/* Arenas: which interpreter's table has which, and which pools lie in them. */
#include <string.h>

#include "cl_heap_scan.h"

/* Index of the first pool at or after `address`. */
static size_t
first_pool(const struct heap_scan *scan, uint64_t address)
{
    size_t low = 0, high = scan->heap->npools;
    const struct cl_pool_row *rows = pool_rows(scan);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Give the pools that the table at `base` has their arenas. With `dry`, only
 * say how many pools those are, and in how many arenas exactly (the number of
 * free pools agrees too), which tells a table from a freed copy of it. */
static struct heap_table
assign(struct heap_scan *scan, uint64_t base, bool dry)
{
    struct cl_pool_row *rows = pool_rows(scan);
    size_t npools = scan->heap->npools, exact = 0, pools = 0;
    struct cl_arena_object arena;
    uint64_t size = 0, read_index = UINT64_MAX; /* neighbours share an arena */
    for (size_t i = 0; i < npools;) {
        uint32_t index = rows[i].arena_index;
        if (index != read_index) {
            uint64_t at = base + (uint64_t)index * sizeof arena;
            int err = cl_mem_read(scan->mem, at, &arena, sizeof arena);
            size = err == 0 ? cl_arena_size(&arena, scan->page) : 0;
            read_index = index;
        }
        if (rows[i].arena != 0 || size == 0 ||
            rows[i].address < arena.address ||
            rows[i].address >= arena.address + size) {
            i++;
            continue;
        }
        uint32_t used = 0;
        for (; i < npools && rows[i].address < arena.address + size; i++) {
            if (rows[i].arena != 0 || rows[i].arena_index != index) {
                continue;
            }
            used += rows[i].used != 0;
            pools++;
            if (!dry) {
                rows[i].arena = arena.address;
                rows[i].interpreter = (uint32_t)scan->ntables;
            }
        }
        exact += used + arena.nfreepools == arena.ntotalpools;
    }
    if (!dry && pools != 0) {
        scan->tables[scan->ntables++] = base;
    }
    return (struct heap_table){base, exact * 2 + (pools != 0), pools};
}

static size_t
unexplained(const struct heap_scan *scan)
{
    size_t n = 0;
    for (size_t i = 0; i < scan->heap->npools; i++) {
        n += pool_rows(scan)[i].arena == 0;
    }
    return n;
}

/* The candidates that may be tables, the most exact first. This process stands
 * still, so that a table of it has an exact arena; another one may be at work.
 */
static void
rank(struct heap_scan *scan)
{
    struct heap_table *list = scan->candidates;
    size_t n = 0, least = scan->is_self ? 2 : 1;
    for (size_t i = 0; i < scan->ncandidates; i++) {
        struct heap_table one = assign(scan, list[i].base, true);
        if (one.score >= least) {
            size_t at = n++;
            for (; at > 0 && list[at - 1].score < one.score; at--) {
                list[at] = list[at - 1];
            }
            list[at] = one;
        }
    }
    scan->ncandidates = n;
}

/* Note where a table must begin that has this arena object, if some pool that
 * nobody explained yet lies in the arena. */
static void
note_candidate(struct heap_scan *scan, const struct cl_arena_object *arena,
               uint64_t at)
{
    uint64_t size = cl_arena_size(arena, scan->page);
    if (size == 0) {
        return;
    }
    size_t i = first_pool(scan, arena->address);
    if (i == scan->heap->npools) {
        return;
    }
    const struct cl_pool_row *row = &pool_rows(scan)[i];
    if (row->address >= arena->address + size || row->arena != 0) {
        return;
    }
    uint64_t base = at - (uint64_t)row->arena_index * sizeof *arena;
    for (size_t k = 0; k < scan->ncandidates; k++) {
        if (scan->candidates[k].base == base) {
            return;
        }
    }
    if (scan->ncandidates == MAX_TABLES) { /* the table may be yet to come */
        rank(scan);
        if (scan->ncandidates > MAX_TABLES / 2) {
            scan->ncandidates = MAX_TABLES / 2;
        }
    }
    scan->candidates[scan->ncandidates++] = (struct heap_table){.base = base};
    scan->nnoted++;
}

/* Whether this is the window itself, which holds copies of what was searched.
 */
static bool
is_own(const struct heap_scan *scan, uint64_t address)
{
    uint64_t window = (uint64_t)(uintptr_t)scan->window.data;
    return scan->is_self && address - window < scan->window.cap;
}

static int
search_window(struct heap_scan *scan, uint64_t from, uint64_t to)
{
    char *bytes = scan->window.data;
    struct cl_arena_object arena;
    int err = cl_mem_read(scan->mem, from, bytes, to - from);
    if (err < 0) {
        return is_fatal(err) ? err : 0;
    }
    for (uint64_t at = 0; at + sizeof arena <= to - from; at += 8) {
        memcpy(&arena, bytes + at, sizeof arena);
        note_candidate(scan, &arena, from + at);
    }
    return 0;
}

/* Look for arena objects in one mapping, until a table is found that explains
 * all. */
static int
search_mapping(struct heap_scan *scan, const struct cl_map *map)
{
    size_t missing = unexplained(scan), noted = scan->nnoted;
    if (missing == 0 || scan->ntables == MAX_TABLES) {
        return 0;
    }
    uint64_t last = 0;
    uint64_t *entries = (uint64_t *)(void *)scan->entries.data;
    uint64_t batch = (uint64_t)BATCH_PAGES * scan->page;
    for (uint64_t from = map->start; from < map->end; from += batch) {
        uint64_t end = map->end - from < batch ? map->end : from + batch;
        size_t npages = (end - from) / scan->page;
        int err = cl_pagemap_read(scan->pagemap, from, npages, entries);
        if (err < 0) {
            return is_fatal(err) ? err : 0;
        }
        for (uint64_t at = from; at < end;) {
            uint64_t stop = at;
            while (stop < end && stop - at < WINDOW - scan->page &&
                   !is_own(scan, stop) &&
                   is_there(entries[(stop - from) / scan->page])) {
                stop += scan->page;
            }
            if (stop == at) {
                at += scan->page;
                continue;
            }
            /* An object may straddle two windows. */
            uint64_t begin = at == last ? at - 40 : at;
            err = search_window(scan, begin, stop);
            if (err < 0) {
                return err;
            }
            at = last = stop;
        }
    }
    if (scan->nnoted != noted) {
        rank(scan);
        if (scan->ncandidates > 0 && scan->candidates[0].pools == missing) {
            assign(scan, scan->candidates[0].base, false);
        }
    }
    return 0;
}

static int
arena_resident(struct heap_scan *scan, struct cl_arena_row *row)
{
    uint64_t *entries = (uint64_t *)(void *)scan->entries.data;
    size_t npages = row->size / scan->page;
    int err = cl_pagemap_read(scan->pagemap, row->address, npages, entries);
    if (err < 0) {
        return is_fatal(err) ? err : 0;
    }
    for (size_t i = 0; i < npages; i++) {
        row->resident += entries[i] & CL_PM_PRESENT ? scan->page : 0;
    }
    return 0;
}

static int
append_arena(struct heap_scan *scan, uint64_t base,
             const struct cl_pool_row *pool)
{
    struct cl_heap *heap = scan->heap;
    size_t size = sizeof(struct cl_arena_row);
    struct cl_arena_object arena;
    uint64_t table = scan->tables[pool->interpreter];
    uint64_t at = table + (uint64_t)pool->arena_index * sizeof arena;
    int err = cl_mem_read(scan->mem, at, &arena, sizeof arena);
    if (err < 0) {
        return err;
    }
    if (cl_arena_size(&arena, scan->page) == 0 || arena.address != base) {
        arena.ntotalpools = /* it has gone since; it was an ordinary one */
            CL_ARENA_SIZE / CL_POOL_SIZE - (base % CL_POOL_SIZE != 0);
    }
    err = cl_buf_reserve(&heap->arenas, (heap->narenas + 1) * size);
    if (err < 0) {
        return err;
    }
    struct cl_arena_row *rows =
        (struct cl_arena_row *)(void *)heap->arenas.data;
    struct cl_arena_row *row = &rows[heap->narenas++];
    uint32_t whole = arena.ntotalpools + (base % CL_POOL_SIZE != 0);
    *row = (struct cl_arena_row){
        .address = base,
        .size = (uint64_t)whole * CL_POOL_SIZE,
        .table = table,
        .index = pool->arena_index,
        .interpreter = pool->interpreter,
        .pools = arena.ntotalpools,
    };
    return arena_resident(scan, row);
}

static int
make_arenas(struct heap_scan *scan)
{
    struct cl_heap *heap = scan->heap;
    struct cl_pool_row *rows = pool_rows(scan);
    struct cl_arena_row *row = NULL;
    for (size_t i = 0; i < heap->npools; i++) {
        const struct cl_pool_row *pool = &rows[i];
        if (row == NULL || row->address != pool->arena) {
            int err = append_arena(scan, pool->arena, pool);
            if (err < 0) {
                return err;
            }
            row = (struct cl_arena_row *)(void *)heap->arenas.data +
                  heap->narenas - 1;
        }
        if (pool->used == 0) {
            row->pools_empty++;
            continue;
        }
        row->pools_used++;
        row->blocks_used += pool->used;
        row->live += (uint64_t)pool->used * pool->block_size;
        row->free += (uint64_t)(pool->free + pool->virgin) * pool->block_size;
        row->retired += (uint64_t)pool->retired * pool->block_size;
    }
    for (size_t i = 0; i < heap->narenas; i++) {
        row = (struct cl_arena_row *)(void *)heap->arenas.data + i;
        row->free += (uint64_t)(row->pools - row->pools_used) * CL_POOL_SIZE;
        row->overhead = row->size - row->live - row->free - row->retired;
    }
    return 0;
}

/* Copies of pools in somebody's buffers are in no table. */
static void
drop_strays(struct heap_scan *scan)
{
    struct cl_heap *heap = scan->heap;
    struct cl_pool_row *rows = pool_rows(scan);
    size_t kept = 0;
    for (size_t i = 0; i < heap->npools; i++) {
        if (rows[i].arena != 0) {
            rows[kept++] = rows[i];
        }
    }
    heap->strays = heap->npools - kept;
    heap->npools = kept;
}

int
cl_heap_find_arenas(struct heap_scan *scan, uint64_t table)
{
    if (table != 0) {
        assign(scan, table, false);
    }
    int err = cl_heap_each_mapping(scan, search_mapping);
    if (err < 0) {
        return err;
    }
    /* A freed table still has arenas that were given back, and copies of pools
     * may lie where one was: the most exact table first. */
    for (rank(scan); scan->ncandidates > 0 && scan->ntables < MAX_TABLES;
         rank(scan)) {
        assign(scan, scan->candidates[0].base, false);
        scan->candidates[0] = scan->candidates[--scan->ncandidates];
    }
    drop_strays(scan);
    return make_arenas(scan);
}
