/* Every arena and pool of a process's pymalloc, found from outside: mappings
 * are scanned for what validates as a pool, and the interpreters' own tables
 * say where each arena begins. Reads through /proc/PID/mem and skips pages
 * that are not there, so that nothing is populated. */
#ifndef COWLAB_CL_HEAP_H
#define COWLAB_CL_HEAP_H

#include <stdint.h>
#include <sys/types.h>

#include "cl_proc.h"

/* One pool. 72 bytes, no padding: Python reads these as they are. */
struct cl_pool_row {
    uint64_t address;
    uint64_t arena; /* address of the arena it lies in */
    uint64_t first; /* of its blocks in cl_heap.blocks; if they were asked */
    uint32_t size_class; /* CL_POOL_EMPTY: reset, has no blocks */
    uint32_t block_size;
    uint32_t capacity, used, free, virgin, retired; /* blocks */
    uint32_t resident;                              /* bytes of 16,384 */
    uint32_t arena_index;
    uint32_t interpreter; /* index of its table, as in cl_arena_row */
    uint64_t pages; /* bit i: its page i is there; where a pool has any */
};

/* One arena. size == live + free + retired + overhead. */
struct cl_arena_row {
    uint64_t address;
    uint64_t size;
    uint64_t live;     /* bytes of blocks in use */
    uint64_t free;     /* of free blocks, and of pools that nobody uses */
    uint64_t retired;  /* of blocks that a trim or a seal retired */
    uint64_t overhead; /* headers, and ends of pools too small for a block */
    uint64_t resident; /* bytes */
    uint64_t table;    /* address of the table it stands in */
    uint32_t index;    /* in that table */
    uint32_t interpreter;
    uint32_t pools;       /* 63 or 64, by its alignment */
    uint32_t pools_used;  /* with a block in use */
    uint32_t pools_empty; /* used once; wait to be used again */
    uint32_t blocks_used;
};

struct cl_heap {
    struct cl_buf pools;  /* of struct cl_pool_row, by address */
    struct cl_buf arenas; /* of struct cl_arena_row, by address */
    struct cl_buf blocks; /* of enum cl_block, a byte a block */
    size_t npools, narenas, nblocks;
    size_t strays; /* looked like pools, but no table has them */
};

/* Scan PID (0: this process). `table` is the calling interpreter's table where
 * it is known, or 0; it is then interpreter 0. `with_blocks`: fill blocks too.
 * Start from {0} or from an earlier result. 0 or -errno, -ENODATA
 * where the process has no memory of its own (a zombie, a kernel thread); one
 * without pymalloc gives 0 and no pools. */
int cl_heap_scan(pid_t pid, uint64_t table, int with_blocks,
                 struct cl_heap *heap);

void cl_heap_release(struct cl_heap *heap);

#endif
