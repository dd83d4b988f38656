/* Scanning a process for its pymalloc heap. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cl_heap_scan.h"

/* Another process may be in the middle of an allocation when a pool is read.
 */
#define TRIES 5

/* Where pools, or tables of arenas, may lie: memory of the process's own. */
static bool
is_candidate(const struct cl_map *map)
{
    uint32_t want = CL_MAP_READ | CL_MAP_WRITE;
    return (map->perms & (want | CL_MAP_SHARED)) == want &&
           !cl_map_has_file(map) && !cl_map_is(map, "[stack]");
}

/* Read the pages of a pool that are there; the others read as zeroes. */
static int
read_pool(const struct heap_scan *scan, uint64_t address,
          const uint64_t *entries, uint64_t start, unsigned char *to)
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
append_pool(struct heap_scan *scan, uint64_t address,
            const struct cl_pool *pool, const unsigned char *blocks,
            uint64_t pages, uint32_t resident)
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
resident_pages(const struct heap_scan *scan, uint64_t address,
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
scan_slot(struct heap_scan *scan, uint64_t address, const uint64_t *entries,
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
scan_mapping(struct heap_scan *scan, const struct cl_map *map)
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

int
cl_heap_each_mapping(struct heap_scan *scan,
                     int (*each)(struct heap_scan *, const struct cl_map *))
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

int
cl_heap_scan(pid_t pid, uint64_t table, int with_blocks, struct cl_heap *heap)
{
    struct heap_scan scan = {
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
        err = cl_heap_each_mapping(&scan, scan_mapping);
    }
    if (err >= 0) {
        err = cl_heap_find_arenas(&scan, table);
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
