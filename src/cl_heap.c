/* Scanning a process for its pymalloc heap. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cl_heap.h"
#include "cl_maps.h"
#include "cl_pagemap.h"
#include "cl_pool.h"

/* Pages of one pagemap read, and bytes of one read of memory. */
#define BATCH_PAGES 4096u
#define WINDOW (256u * 1024)

/* Another process may be in the middle of an allocation when a pool is read.
 */
#define TRIES 5

#define MAX_TABLES 64

struct candidate {
    uint64_t base;
    size_t hits;
};

struct scan {
    int mem, pagemap;
    size_t page;
    struct cl_heap *heap;
    bool with_blocks, is_self;
    struct cl_buf maps, entries, window;
    uint64_t tables[MAX_TABLES];
    size_t ntables;
};

static struct cl_pool_row *
pool_rows(const struct scan *scan)
{
    return (struct cl_pool_row *)(void *)scan->heap->pools.data;
}

static bool
is_there(uint64_t entry)
{
    return (entry & (CL_PM_PRESENT | CL_PM_SWAPPED)) != 0;
}

/* Memory that is only sometimes there is no failure of the scan. */
static bool
is_fatal(int err)
{
    return err < 0 && err != -EFAULT && err != -EIO && err != -ENODATA;
}

/* Where pools, or tables of arenas, may lie: memory of the process's own. */
static bool
is_candidate(const struct cl_map *map)
{
    uint32_t want = CL_MAP_READ | CL_MAP_WRITE;
    return (map->perms & (want | CL_MAP_SHARED)) == want &&
           !cl_map_has_file(map) && !cl_map_is(map, "[stack]");
}

/* ---- Pools ---- */

/* Read the pages of a pool that are there; the others read as zeroes. */
static int
read_pool(const struct scan *scan, uint64_t address, const uint64_t *entries,
          uint64_t start, unsigned char *to)
{
    memset(to, 0, CL_POOL_SIZE);
    uint64_t step = scan->page < CL_POOL_SIZE ? scan->page : CL_POOL_SIZE;
    uint64_t end = address + CL_POOL_SIZE;
    for (uint64_t at = address; at < end;) {
        uint64_t stop = at;
        while (stop < end && is_there(entries[(stop - start) / scan->page])) {
            stop += step;
        }
        if (stop == at) {
            at += step;
            continue;
        }
        int err = cl_mem_read(scan->mem, at, to + (at - address), stop - at);
        if (err < 0) {
            return err;
        }
        at = stop;
    }
    return 0;
}

static int
append_pool(struct scan *scan, uint64_t address, const struct cl_pool *pool,
            const unsigned char *blocks, uint64_t pages, uint32_t resident)
{
    struct cl_heap *heap = scan->heap;
    size_t size = sizeof(struct cl_pool_row);
    int err = cl_buf_reserve(&heap->pools, (heap->npools + 1) * size);
    if (err < 0) {
        return err;
    }
    if (scan->with_blocks) {
        err = cl_buf_reserve(&heap->blocks, heap->nblocks + pool->capacity);
        if (err < 0) {
            return err;
        }
        memcpy(heap->blocks.data + heap->nblocks, blocks, pool->capacity);
    }
    pool_rows(scan)[heap->npools++] = (struct cl_pool_row){
        .address = address,
        .first = heap->nblocks,
        .size_class = pool->header.size_class,
        .block_size = pool->block_size,
        .capacity = pool->capacity,
        .used = pool->used,
        .free = pool->free,
        .virgin = pool->virgin,
        .retired = pool->retired,
        .resident = resident,
        .arena_index = pool->header.arena_index,
        .pages = pages,
    };
    heap->nblocks += scan->with_blocks ? pool->capacity : 0;
    return 0;
}

/* Which pages of a pool are there, a bit each, and their bytes. */
static uint64_t
resident_pages(const struct scan *scan, uint64_t address,
               const uint64_t *entries, uint64_t start, uint32_t *bytes)
{
    uint32_t step = scan->page < CL_POOL_SIZE ? scan->page : CL_POOL_SIZE;
    uint64_t pages = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < CL_POOL_SIZE / step; i++) {
        uint64_t at = address + (uint64_t)i * step;
        if (entries[(at - start) / scan->page] & CL_PM_PRESENT) {
            *bytes += step;
            pages |= 1ull << i;
        }
    }
    return pages;
}

/* 1 a pool, 0 none, -errno. */
static int
scan_slot(struct scan *scan, uint64_t address, const uint64_t *entries,
          uint64_t start)
{
    struct cl_pool_header header;
    int err = cl_mem_read(scan->mem, address, &header, sizeof header);
    if (err < 0) {
        return is_fatal(err) ? err : 0;
    }
    if (!cl_pool_plausible(&header)) {
        return 0;
    }
    unsigned char blocks[(CL_POOL_SIZE - CL_POOL_HEADER) / 16];
    /* Off the alignment of pools, so that a copy is never taken for one. */
    unsigned char *bytes = (unsigned char *)scan->window.data + 64;
    struct cl_pool pool;
    for (int i = 0; i < TRIES; i++) {
        err = read_pool(scan, address, entries, start, bytes);
        if (err < 0) {
            return is_fatal(err) ? err : 0;
        }
        if (cl_pool_validate(bytes, address, &pool, blocks) == 0) {
            uint32_t resident;
            uint64_t pages =
                resident_pages(scan, address, entries, start, &resident);
            err = append_pool(scan, address, &pool, blocks, pages, resident);
            return err < 0 ? err : 1;
        }
    }
    return 0;
}

static int
scan_mapping(struct scan *scan, const struct cl_map *map)
{
    uint64_t *entries = (uint64_t *)(void *)scan->entries.data;
    uint64_t align = CL_POOL_SIZE - 1;
    uint64_t batch = (uint64_t)BATCH_PAGES * scan->page;
    uint64_t first = (map->start + align) & ~align;
    for (uint64_t from = first; from + CL_POOL_SIZE <= map->end;
         from += batch) {
        uint64_t start = from & ~(uint64_t)(scan->page - 1);
        uint64_t end = map->end - from < batch ? map->end : from + batch;
        size_t npages = (end - start + scan->page - 1) / scan->page;
        int err = cl_pagemap_read(scan->pagemap, start, npages, entries);
        if (err < 0) {
            return is_fatal(err) ? err : 0;
        }
        for (uint64_t at = from; at + CL_POOL_SIZE <= end;
             at += CL_POOL_SIZE) {
            if (!is_there(entries[(at - start) / scan->page])) {
                continue;
            }
            err = scan_slot(scan, at, entries, start);
            if (err < 0) {
                return err;
            }
        }
    }
    return 0;
}

/* Call `each` for every candidate mapping. */
static int
for_each_mapping(struct scan *scan,
                 int (*each)(struct scan *, const struct cl_map *))
{
    const char *cursor = scan->maps.data;
    const char *end = scan->maps.data + scan->maps.len;
    struct cl_map map;
    int more;
    while ((more = cl_maps_next(&cursor, end, &map)) == 1) {
        if (is_candidate(&map)) {
            int err = each(scan, &map);
            if (err < 0) {
                return err;
            }
        }
    }
    return more;
}

/* ---- Arenas ---- */

/* Index of the first pool at or after `address`. */
static size_t
first_pool(const struct scan *scan, uint64_t address)
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
 * say how many arenas it explains exactly (the number of free pools agrees
 * too), which tells a table from a freed copy of it. */
static size_t
assign(struct scan *scan, uint64_t base, bool dry)
{
    struct cl_pool_row *rows = pool_rows(scan);
    size_t npools = scan->heap->npools, exact = 0, any = 0;
    for (size_t i = 0; i < npools;) {
        struct cl_arena_object arena;
        uint32_t index = rows[i].arena_index;
        uint64_t at = base + (uint64_t)index * sizeof arena;
        uint64_t size = 0;
        if (rows[i].arena == 0 &&
            cl_mem_read(scan->mem, at, &arena, sizeof arena) == 0) {
            size = cl_arena_size(&arena, scan->page);
        }
        if (size == 0 || rows[i].address < arena.address ||
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
            if (!dry) {
                rows[i].arena = arena.address;
                rows[i].interpreter = (uint32_t)scan->ntables;
            }
        }
        any++;
        exact += used + arena.nfreepools == arena.ntotalpools;
    }
    if (!dry && any != 0) {
        scan->tables[scan->ntables++] = base;
    }
    return dry ? exact * 2 + (any != 0) : any;
}

static size_t
unexplained(const struct scan *scan)
{
    size_t n = 0;
    for (size_t i = 0; i < scan->heap->npools; i++) {
        n += pool_rows(scan)[i].arena == 0;
    }
    return n;
}

/* Note where a table must begin that has this arena object, if some pool that
 * nobody explained yet lies in the arena. */
static void
note_candidate(struct scan *scan, const struct cl_arena_object *arena,
               uint64_t at, struct candidate *list, size_t *n)
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
    for (size_t k = 0; k < *n; k++) {
        if (list[k].base == base) {
            list[k].hits++;
            return;
        }
    }
    if (*n < MAX_TABLES) {
        list[(*n)++] = (struct candidate){base, 1};
    }
}

/* Whether this is the window itself, which holds copies of what was searched.
 */
static bool
is_own(const struct scan *scan, uint64_t address)
{
    uint64_t window = (uint64_t)(uintptr_t)scan->window.data;
    return scan->is_self && address - window < scan->window.cap;
}

static int
search_window(struct scan *scan, uint64_t from, uint64_t to,
              struct candidate *list, size_t *n)
{
    char *bytes = scan->window.data;
    struct cl_arena_object arena;
    int err = cl_mem_read(scan->mem, from, bytes, to - from);
    if (err < 0) {
        return is_fatal(err) ? err : 0;
    }
    for (uint64_t at = 0; at + sizeof arena <= to - from; at += 8) {
        memcpy(&arena, bytes + at, sizeof arena);
        note_candidate(scan, &arena, from + at, list, n);
    }
    return 0;
}

/* Look for arena objects in one mapping, pools left out, then let the tables
 * they stand in explain what they can, the most exact first. A freed table
 * still has arenas that were given back, and copies of pools may lie where one
 * was. This process stands still, so that a table of it is exact; another one
 * may be at work. */
static int
search_mapping(struct scan *scan, const struct cl_map *map)
{
    if (unexplained(scan) == 0 || scan->ntables == MAX_TABLES) {
        return 0;
    }
    struct candidate list[MAX_TABLES];
    size_t n = 0;
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
            err = search_window(scan, begin, stop, list, &n);
            if (err < 0) {
                return err;
            }
            at = last = stop;
        }
    }
    size_t least = scan->is_self ? 2 : 1; /* 2: an exact arena */
    while (scan->ntables < MAX_TABLES && n > 0) {
        size_t best = 0, best_score = 0;
        for (size_t i = 0; i < n; i++) {
            size_t score = assign(scan, list[i].base, true);
            if (score > best_score) {
                best = i;
                best_score = score;
            }
        }
        if (best_score < least) {
            break;
        }
        assign(scan, list[best].base, false);
        list[best] = list[--n];
    }
    return 0;
}

static int
arena_resident(struct scan *scan, struct cl_arena_row *row)
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
append_arena(struct scan *scan, uint64_t base, const struct cl_pool_row *pool)
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
    if (cl_arena_size(&arena, scan->page) == 0) {
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
make_arenas(struct scan *scan)
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
drop_strays(struct scan *scan)
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

static int
scan_all(struct scan *scan, uint64_t table)
{
    int err = for_each_mapping(scan, scan_mapping);
    if (err < 0) {
        return err;
    }
    if (table != 0) {
        assign(scan, table, false);
    }
    err = for_each_mapping(scan, search_mapping);
    if (err < 0) {
        return err;
    }
    drop_strays(scan);
    return make_arenas(scan);
}

int
cl_heap_scan(pid_t pid, uint64_t table, int with_blocks, struct cl_heap *heap)
{
    struct scan scan = {
        .mem = -1,
        .pagemap = -1,
        .page = cl_page_size(),
        .heap = heap,
        .with_blocks = with_blocks != 0,
        .is_self = pid == 0 || pid == getpid(),
    };
    heap->npools = heap->narenas = heap->nblocks = heap->strays = 0;
    size_t entries = (BATCH_PAGES + 2) * sizeof(uint64_t);
    int err = cl_buf_reserve(&scan.entries, entries);
    if (err == 0) {
        err = cl_buf_reserve(&scan.window, WINDOW + 64);
    }
    if (err == 0) {
        err = scan.mem = cl_proc_open(pid, "mem", O_RDONLY);
    }
    if (err >= 0) {
        err = scan.pagemap = cl_proc_open(pid, "pagemap", O_RDONLY);
    }
    if (err >= 0) {
        err = cl_proc_read(pid, "maps", &scan.maps);
    }
    if (err >= 0 && scan.maps.len == 0) {
        err = -ENODATA;
    }
    if (err >= 0) {
        err = scan_all(&scan, table);
    }
    if (scan.mem >= 0) {
        close(scan.mem);
    }
    if (scan.pagemap >= 0) {
        close(scan.pagemap);
    }
    cl_buf_release(&scan.maps);
    cl_buf_release(&scan.entries);
    cl_buf_release(&scan.window);
    return err;
}

void
cl_heap_release(struct cl_heap *heap)
{
    cl_buf_release(&heap->pools);
    cl_buf_release(&heap->arenas);
    cl_buf_release(&heap->blocks);
    *heap = (struct cl_heap){0};
}
