/* Recognising pymalloc's pools: arithmetic on bytes, nothing else. */
#include <errno.h>
#include <string.h>

#include "cl_pool.h"

/* The offset at which a pool has no block left that was never used. Blocks
 * that a trim or a seal retired leave it there too. */
static uint32_t
end_offset(uint32_t size_class)
{
    return CL_POOL_HEADER +
           cl_pool_capacity(size_class) * cl_pool_block_size(size_class);
}

bool
cl_pool_plausible(const struct cl_pool_header *header)
{
    uint32_t size_class = header->size_class;
    if (size_class == CL_POOL_EMPTY) {
        /* Reset by a trim: the size class it had is in max_next_offset. */
        uint32_t size = CL_POOL_SIZE - header->max_next_offset;
        if (header->count != 0 || header->freeblock != 0 || size == 0 ||
            size % 16 != 0 || size > 16 * CL_SIZE_CLASSES) {
            return false;
        }
        return header->next_offset == end_offset(size / 16 - 1);
    }
    if (size_class >= CL_SIZE_CLASSES) {
        return false;
    }
    uint32_t size = cl_pool_block_size(size_class);
    return header->max_next_offset == CL_POOL_SIZE - size &&
           header->next_offset >= CL_POOL_HEADER + 2 * size &&
           header->next_offset <= end_offset(size_class) &&
           (header->next_offset - CL_POOL_HEADER) % size == 0 &&
           header->count <= cl_pool_capacity(size_class) &&
           header->freeblock % 16 == 0;
}

int
cl_pool_validate(const unsigned char *bytes, uint64_t address,
                 struct cl_pool *pool, unsigned char *blocks)
{
    unsigned char own[(CL_POOL_SIZE - CL_POOL_HEADER) / 16];
    if (blocks == NULL) {
        blocks = own;
    }
    memset(pool, 0, sizeof *pool);
    memcpy(&pool->header, bytes, sizeof pool->header);
    const struct cl_pool_header *header = &pool->header;
    if (address % CL_POOL_SIZE != 0 || !cl_pool_plausible(header)) {
        return -EBADMSG;
    }
    if (header->size_class == CL_POOL_EMPTY) {
        return 0;
    }
    uint32_t size = cl_pool_block_size(header->size_class);
    uint32_t capacity = cl_pool_capacity(header->size_class);
    uint32_t touched = (header->next_offset - CL_POOL_HEADER) / size;
    memset(blocks, CL_BLOCK_USED, touched);
    memset(blocks + touched, CL_BLOCK_VIRGIN, capacity - touched);

    uint32_t nfree = 0;
    for (uint64_t link = header->freeblock; link != 0; nfree++) {
        uint64_t offset = link - address; /* below address: wraps, so huge */
        if (offset < CL_POOL_HEADER || offset >= header->next_offset ||
            (offset - CL_POOL_HEADER) % size != 0) {
            return -EBADMSG;
        }
        unsigned char *block = &blocks[(offset - CL_POOL_HEADER) / size];
        if (*block != CL_BLOCK_USED) {
            return -EBADMSG; /* a chain that comes back to itself */
        }
        *block = CL_BLOCK_FREE;
        memcpy(&link, bytes + offset, sizeof link);
    }

    uint32_t known = header->count + nfree + (capacity - touched);
    if (known > capacity || (known < capacity && touched < capacity)) {
        return -EBADMSG;
    }
    pool->block_size = size;
    pool->capacity = capacity;
    pool->used = header->count;
    pool->free = nfree;
    pool->virgin = capacity - touched;
    pool->retired = capacity - known;
    return 0;
}

uint64_t
cl_arena_size(const struct cl_arena_object *arena, uint64_t page)
{
    uint64_t base = arena->address;
    if (base == 0 || base % page != 0 || arena->ntotalpools == 0) {
        return 0;
    }
    /* It holds a pool less where it is not aligned to pools. */
    uint32_t whole = arena->ntotalpools + (base % CL_POOL_SIZE != 0);
    uint64_t size = (uint64_t)whole * CL_POOL_SIZE;
    if (size != CL_ARENA_SIZE && size != 2 * (uint64_t)CL_ARENA_SIZE) {
        return 0;
    }
    if (arena->nfreepools > arena->ntotalpools ||
        arena->pool_address % CL_POOL_SIZE != 0 ||
        arena->pool_address < base ||
        arena->pool_address > base + size + CL_POOL_SIZE) {
        return 0;
    }
    return size;
}
