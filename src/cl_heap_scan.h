/* What the two halves of a heap scan share: cl_heap.c finds the pools and
 * cl_heap_arenas.c the arenas that they lie in. */
#ifndef COWLAB_CL_HEAP_SCAN_H
#define COWLAB_CL_HEAP_SCAN_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "cl_heap.h"
#include "cl_maps.h"
#include "cl_pagemap.h"
#include "cl_pool.h"

/* Pages of one pagemap read, and bytes of one read of memory. */
#define BATCH_PAGES 4096u
#define WINDOW (256u * 1024)

#define MAX_TABLES 256

/* Where a table of arenas may begin, and how well it explains the pools. */
struct heap_table {
    uint64_t base;
    size_t score, pools;
};

struct heap_scan {
    int mem, pagemap;
    size_t page;
    struct cl_heap *heap;
    bool with_blocks, is_self;
    struct cl_buf maps, entries, window;
    uint64_t tables[MAX_TABLES];
    struct heap_table candidates[MAX_TABLES];
    size_t ntables, ncandidates, nnoted; /* noted: of all there were */
};

static inline struct cl_pool_row *
pool_rows(const struct heap_scan *scan)
{
    return (struct cl_pool_row *)(void *)scan->heap->pools.data;
}

static inline bool
is_there(uint64_t entry)
{
    return (entry & (CL_PM_PRESENT | CL_PM_SWAPPED)) != 0;
}

/* Memory that is only sometimes there is no failure of the scan. */
static inline bool
is_fatal(int err)
{
    return err < 0 && err != -EFAULT && err != -EIO && err != -ENODATA;
}

/* Call `each` for every mapping where pools, or tables of arenas, may lie. */
int cl_heap_each_mapping(struct heap_scan *scan,
                         int (*each)(struct heap_scan *,
                                     const struct cl_map *));

/* Give the pools their arenas, by the interpreters' tables (`table` is one
 * that is known, or 0), and drop what is in no arena. 0 or -errno. */
int cl_heap_find_arenas(struct heap_scan *scan, uint64_t table);

#endif
