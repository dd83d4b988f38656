/* pymalloc's pools and arenas, recognised by validation; the arithmetic is the
 * same in CPython 3.11 to 3.15. Reads nothing itself: works on bytes it is
 * given. */
#ifndef COWLAB_CL_POOL_H
#define COWLAB_CL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#define CL_POOL_SIZE 16384u
#define CL_POOL_HEADER 48u
#define CL_ARENA_SIZE (1u << 20)
#define CL_SIZE_CLASSES 32u
#define CL_POOL_EMPTY                                                         \
    0xffffu /* szidx of an empty pool that a trim has reset */

struct cl_pool_header {
    uint32_t count; /* blocks in use */
    uint32_t pad;
    uint64_t freeblock; /* head of the chain of freed blocks, or 0 */
    uint64_t next, prev;
    uint32_t arena_index;
    uint32_t size_class;      /* block size is (size_class + 1) * 16 */
    uint32_t next_offset;     /* of the first block never used */
    uint32_t max_next_offset; /* of the last block */
};

static inline uint32_t
cl_pool_block_size(uint32_t size_class)
{
    return (size_class + 1) * 16;
}

static inline uint32_t
cl_pool_capacity(uint32_t size_class)
{
    return (CL_POOL_SIZE - CL_POOL_HEADER) / cl_pool_block_size(size_class);
}

/* Whether these 48 bytes can be the header of a pool: the cheap test, one
 * cache line. Fields agree with each other; no chain is walked. */
bool cl_pool_plausible(const struct cl_pool_header *header);

/* How each block of a pool stands. */
enum cl_block {
    CL_BLOCK_USED,
    CL_BLOCK_FREE,
    CL_BLOCK_VIRGIN,
    CL_BLOCK_RETIRED
};

struct cl_pool {
    struct cl_pool_header header;
    uint32_t block_size, capacity;
    uint32_t used, free, virgin; /* blocks; retired = capacity - these */
    uint32_t retired;
};

/* The full test, on the whole pool's 16,384 bytes as they were at `address`:
 * walks the free chain. `blocks`, if not NULL, gets `capacity` values of enum
 * cl_block (room for 1,021); a retired block cannot be told from a used one
 * here and counts as USED in it. 0, or -EBADMSG where this is no pool. */
int cl_pool_validate(const unsigned char *bytes, uint64_t address,
                     struct cl_pool *pool, unsigned char *blocks);

/* An entry of an interpreter's table of arenas. */
struct cl_arena_object {
    uint64_t address; /* 0: not in use */
    uint64_t pool_address;
    uint32_t nfreepools, ntotalpools;
    uint64_t freepools, next, prev;
};

/* Bytes of the arena that the entry describes: 1 MiB, or 2 MiB in a build with
 * huge pages (3.15). 0: this is no entry, or one not in use. */
uint64_t cl_arena_size(const struct cl_arena_object *arena, uint64_t page);

#endif
