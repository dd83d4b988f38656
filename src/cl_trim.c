/* Trim and seal. */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "cl_pagemap.h"
#include "cl_trim.h"

static uint32_t
end_offset(const struct cl_pool *pool)
{
    return CL_POOL_HEADER + pool->capacity * pool->block_size;
}

/* Bits of the pages that block `i` lies on. */
static uint32_t
pages_of(const struct cl_pool *pool, uint32_t i, uint32_t page)
{
    uint32_t first = CL_POOL_HEADER + i * pool->block_size;
    uint32_t last = first + pool->block_size - 1;
    return (2u << last / page) - (1u << first / page);
}

static void
reset_pool(struct cl_pool_header *header, const struct cl_pool *pool,
           uint32_t resident, uint32_t *drop, struct cl_trim *trim)
{
    *drop = resident & ~1u;
    if (pool->block_size == 0) { /* has been reset before */
        return;
    }
    if (*drop == 0 && pool->retired == 0) {
        return;
    }
    header->size_class = CL_POOL_EMPTY;
    header->freeblock = 0;
    header->next_offset = end_offset(pool);
    trim->pools_reset++;
    trim->blocks_restored += pool->retired;
}

void
cl_trim_pool(unsigned char *memory, const struct cl_pool *pool,
             const unsigned char *blocks, uint32_t page, uint32_t resident,
             uint32_t *drop, struct cl_trim *trim)
{
    struct cl_pool_header *header = (struct cl_pool_header *)(void *)memory;
    trim->pools++;
    *drop = 0;
    if (header->count == 0) {
        reset_pool(header, pool, resident, drop, trim);
        return;
    }
    uint32_t spare = pool->free + pool->virgin;
    trim->blocks_left += spare;
    if (spare == 0) {
        return;
    }
    uint32_t busy = 1; /* the header's page */
    for (uint32_t i = 0; i < pool->capacity; i++) {
        if (blocks[i] == CL_BLOCK_USED) {
            busy |= pages_of(pool, i, page);
        }
    }
    uint32_t give = resident & ~busy;
    if (give == 0) {
        return;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < pool->capacity; i++) {
        kept += blocks[i] == CL_BLOCK_FREE &&
                (pages_of(pool, i, page) & give) == 0;
    }
    if (kept == 0) {
        trim->pools_left++;
        return;
    }
    /* The chain in the order of addresses, so that what is allocated next
     * lies together. */
    uint64_t address = (uint64_t)(uintptr_t)memory;
    uint64_t link = 0;
    for (uint32_t i = pool->capacity; i-- > 0;) {
        if (blocks[i] == CL_BLOCK_FREE &&
            (pages_of(pool, i, page) & give) == 0) {
            uint32_t offset = CL_POOL_HEADER + i * pool->block_size;
            memcpy(memory + offset, &link, sizeof link);
            link = address + offset;
        }
    }
    header->freeblock = link;
    header->next_offset = end_offset(pool);
    *drop = give;
    trim->pools_trimmed++;
    trim->blocks_retired += spare - kept;
    trim->blocks_left -= spare - kept;
}

/* Drop the pages of `drop`, those that are adjacent in one call. */
static int
drop_pages(unsigned char *memory, uint32_t page, uint32_t drop,
           struct cl_trim *trim)
{
    for (uint32_t i = 0; drop >> i != 0;) {
        if ((drop >> i & 1) == 0) {
            i++;
            continue;
        }
        uint32_t n = 1;
        while (drop >> (i + n) & 1) {
            n++;
        }
        if (madvise(memory + i * page, (size_t)n * page, MADV_DONTNEED) < 0) {
            return -errno;
        }
        trim->pages += n;
        trim->bytes += (uint64_t)n * page;
        i += n;
    }
    return 0;
}

/* The pool in memory, seen again: it must be as it was scanned. */
static bool
is_unchanged(const struct cl_pool_row *row, struct cl_pool *pool,
             unsigned char *blocks)
{
    const unsigned char *memory =
        (const unsigned char *)(uintptr_t)row->address;
    return cl_pool_validate(memory, row->address, pool, blocks) == 0 &&
           pool->used == row->used && pool->retired == row->retired;
}

static const struct cl_pool_row *
row_at(const struct cl_heap *heap, size_t i)
{
    return (const struct cl_pool_row *)(const void *)heap->pools.data + i;
}

int
cl_trim_heap(const struct cl_heap *heap, struct cl_trim *trim)
{
    size_t page = cl_page_size();
    *trim = (struct cl_trim){0};
    if (page >= CL_POOL_SIZE) {
        return 0; /* a page is a pool or more: there is none inside */
    }
    for (size_t i = 0; i < heap->npools; i++) {
        const struct cl_pool_row *row = row_at(heap, i);
        unsigned char blocks[(CL_POOL_SIZE - CL_POOL_HEADER) / 16];
        struct cl_pool pool;
        if (row->interpreter != 0 || !is_unchanged(row, &pool, blocks)) {
            continue;
        }
        unsigned char *memory = (unsigned char *)(uintptr_t)row->address;
        uint32_t drop;
        cl_trim_pool(memory, &pool, blocks, (uint32_t)page,
                     (uint32_t)row->pages, &drop, trim);
        int err = drop_pages(memory, (uint32_t)page, drop, trim);
        if (err < 0) {
            return err;
        }
    }
    return 0;
}

static struct cl_pool_header *
pool_at(uint64_t address)
{
    return (struct cl_pool_header *)(uintptr_t)address;
}

bool
cl_pool_is_linked(const struct cl_pool_header *pool)
{
    uint64_t self = (uint64_t)(uintptr_t)pool;
    return pool->next != 0 && pool->prev != 0 &&
           pool_at(pool->next)->prev == self &&
           pool_at(pool->prev)->next == self;
}

/* Take a partly used pool out of its list and make it look full. */
static void
seal_pool(struct cl_pool_header *header, uint32_t spare, struct cl_seal *seal)
{
    seal->pools++;
    if (header->count < 2 || !cl_pool_is_linked(header)) {
        seal->pools_left++;
        return;
    }
    pool_at(header->next)->prev = header->prev;
    pool_at(header->prev)->next = header->next;
    header->freeblock = 0;
    uint32_t size = cl_pool_block_size(header->size_class);
    /* Not max_next_offset + size: a pool has a remainder that is no block. */
    header->next_offset =
        CL_POOL_HEADER + cl_pool_capacity(header->size_class) * size;
    seal->pools_sealed++;
    seal->blocks_retired += spare;
    seal->bytes_retired += (uint64_t)spare * size;
}

void
cl_seal_heap(const struct cl_heap *heap, struct cl_seal *seal)
{
    *seal = (struct cl_seal){0};
    for (size_t i = 0; i < heap->npools; i++) {
        const struct cl_pool_row *row = row_at(heap, i);
        uint32_t spare = row->free + row->virgin;
        struct cl_pool pool;
        if (row->interpreter == 0 && row->used != 0 && spare != 0 &&
            is_unchanged(row, &pool, NULL)) {
            seal_pool(pool_at(row->address), spare, seal);
        }
    }
}

/* The head of a list in usedpools is no pool: obmalloc places it so that its
 * `next` and `prev` are two words of the table. */
static uint64_t
list_head(uint64_t used_pools, uint32_t size_class)
{
    return used_pools + 16 * (uint64_t)size_class -
           offsetof(struct cl_pool_header, next);
}

static bool
is_pool_of(uint64_t address, uint32_t size_class)
{
    return address % CL_POOL_SIZE == 0 &&
           cl_pool_plausible(pool_at(address)) &&
           pool_at(address)->size_class == size_class;
}

uint64_t
cl_used_pools(const struct cl_pool_header *pool, uint32_t size_class)
{
    uint64_t at = (uint64_t)(uintptr_t)pool;
    while (is_pool_of(at, size_class)) {
        if (!cl_pool_is_linked(pool_at(at))) {
            return 0;
        }
        at = pool_at(at)->next;
    }
    uint64_t used_pools =
        at + offsetof(struct cl_pool_header, next) - 16 * (uint64_t)size_class;
    for (uint32_t i = 0; i < CL_SIZE_CLASSES; i++) {
        uint64_t head = list_head(used_pools, i);
        const struct cl_pool_header *list = pool_at(head);
        if ((list->next == head) != (list->prev == head)) {
            return 0;
        }
        if (list->next != head && (!is_pool_of(list->next, i) ||
                                   pool_at(list->next)->prev != head)) {
            return 0;
        }
    }
    return used_pools;
}

/* Blocks that the pool can still give. */
static uint32_t
spare_blocks(const struct cl_pool_header *pool)
{
    uint32_t size = cl_pool_block_size(pool->size_class), n = 0;
    for (uint64_t at = pool->freeblock; at != 0; n++) {
        memcpy(&at, (const void *)(uintptr_t)at, sizeof at);
    }
    for (uint32_t at = pool->next_offset; at <= pool->max_next_offset;
         at += size) {
        n++;
    }
    return n;
}

void
cl_seal_lists(uint64_t used_pools, struct cl_seal *seal)
{
    *seal = (struct cl_seal){0};
    for (uint32_t i = 0; i < CL_SIZE_CLASSES; i++) {
        uint64_t head = list_head(used_pools, i);
        uint64_t at = pool_at(head)->next;
        while (at != head) {
            struct cl_pool_header *pool = pool_at(at);
            at = pool->next;
            seal_pool(pool, spare_blocks(pool), seal);
        }
    }
}
