/* Giving back the free pages inside pinned arenas, and sealing pools before a
 * fork. Works on this process's own heap, in place: the caller holds the GIL
 * of the interpreter whose pools these are, from before the scan to the end.
 *
 * What obmalloc relies on, and these keep:
 * - a pool with a block in use and a block to give is in its usedpools list,
 *   and its freeblock is not 0; a pool that has none to give is in no list;
 * - when the last block of a pool is freed, the pool has another free block
 *   already. So no pool is ever left with fewer than two blocks that go round:
 *   with one, it would stay in usedpools for good and pin its arena;
 * - a pool that nobody uses is taken over as it is by its old size class, and
 *   initialised anew by any other, CL_POOL_EMPTY included. */
#ifndef COWLAB_CL_TRIM_H
#define COWLAB_CL_TRIM_H

#include <stdbool.h>
#include <stdint.h>

#include "cl_heap.h"
#include "cl_pool.h"

struct cl_trim {
    uint64_t pools;         /* looked at */
    uint64_t pools_trimmed; /* in use, and gave pages back */
    uint64_t pools_reset;   /* empty, and gave pages or blocks back */
    uint64_t pools_left;    /* have free pages, but could not spare the blocks
                               that lie on them */
    uint64_t pages;         /* returned */
    uint64_t bytes;
    uint64_t blocks_retired;
    uint64_t blocks_restored; /* that an earlier trim or seal had retired */
    uint64_t blocks_left;     /* free blocks that can still be allocated */
};

struct cl_seal {
    uint64_t pools;        /* partly used, looked at */
    uint64_t pools_sealed; /* now look full */
    uint64_t pools_left;   /* with one block in use: see above */
    uint64_t blocks_retired;
    uint64_t bytes_retired;
};

/* Decide about one pool in memory, change its header and its chain, and say in
 * *drop which of its pages (bit i: page i, never 0) may now be dropped.
 * `resident` has a bit for each page that is there; only those are worth it.
 * `pool` and `blocks` are what cl_pool_validate gave. Counts into `trim`. */
void cl_trim_pool(unsigned char *memory, const struct cl_pool *pool,
                  const unsigned char *blocks, uint32_t page,
                  uint32_t resident, uint32_t *drop, struct cl_trim *trim);

/* Trim interpreter 0 of `heap`, a scan of this process with blocks. 0, or
 * -errno of madvise, with every pool in order all the same. */
int cl_trim_heap(const struct cl_heap *heap, struct cl_trim *trim);

/* Whether this partly used pool stands in a list as obmalloc would have it. */
bool cl_pool_is_linked(const struct cl_pool_header *pool);

/* Seal interpreter 0 of `heap`: every partly used pool looks full, so that new
 * objects go to fresh pools and the pages of these stay shared after a fork.
 * A block freed in a sealed pool puts that pool back in use. */
void cl_seal_heap(const struct cl_heap *heap, struct cl_seal *seal);

/* The address of usedpools, obmalloc's table of the lists of partly used
 * pools, found by following the list that `pool` stands in: a partly used pool
 * of size class `size_class`. 0 where what is found there does not look like
 * it.
 */
uint64_t cl_used_pools(const struct cl_pool_header *pool, uint32_t size_class);

/* The same as cl_seal_heap, for the pools of this table: it looks at nothing
 * else, so that its cost is that of what was allocated since the last time. */
void cl_seal_lists(uint64_t used_pools, struct cl_seal *seal);

#endif
