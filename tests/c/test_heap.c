/* Pools made by hand: recognised, refused, trimmed; and sets of addresses. */
#include <errno.h>
#include <stdlib.h>

#include "check.h"
#include "cl_addrs.h"
#include "cl_pool.h"
#include "cl_trim.h"

#define SIZE 64u
#define CAPACITY ((CL_POOL_SIZE - CL_POOL_HEADER) / SIZE)
#define END (CL_POOL_HEADER + CAPACITY * SIZE)

static unsigned char *
block(unsigned char *pool, uint32_t i)
{
    return pool + CL_POOL_HEADER + i * SIZE;
}

/* A pool in which the first `touched` blocks were used once, and every one but
 * each `step`th is free again. */
static unsigned char *
make_pool(uint32_t touched, uint32_t step)
{
    unsigned char *pool = aligned_alloc(CL_POOL_SIZE, CL_POOL_SIZE);
    memset(pool, 0, CL_POOL_SIZE);
    struct cl_pool_header *header = (struct cl_pool_header *)(void *)pool;
    *header = (struct cl_pool_header){
        .size_class = SIZE / 16 - 1,
        .next_offset = CL_POOL_HEADER + touched * SIZE,
        .max_next_offset = CL_POOL_SIZE - SIZE,
    };
    for (uint32_t i = 0; i < touched; i++) {
        if (i % step == 0) {
            header->count++;
            memset(block(pool, i), 0xab, SIZE);
        } else {
            memcpy(block(pool, i), &header->freeblock, 8);
            header->freeblock = (uint64_t)(uintptr_t)block(pool, i);
        }
    }
    return pool;
}

static int
validate(const unsigned char *pool, struct cl_pool *out, unsigned char *blocks)
{
    return cl_pool_validate(pool, (uint64_t)(uintptr_t)pool, out, blocks);
}

static void
recognised_and_refused(void)
{
    struct cl_pool pool;
    unsigned char blocks[1021];
    unsigned char *memory = make_pool(100, 10);
    struct cl_pool_header *header = (struct cl_pool_header *)(void *)memory;
    CHECK(validate(memory, &pool, blocks) == 0);
    CHECK(pool.used == 10 && pool.free == 90 && pool.retired == 0);
    CHECK(pool.virgin == CAPACITY - 100 && pool.capacity == CAPACITY);
    CHECK(blocks[0] == CL_BLOCK_USED && blocks[1] == CL_BLOCK_FREE);
    CHECK(blocks[100] == CL_BLOCK_VIRGIN);

    struct cl_pool_header good = *header;
    header->max_next_offset += 16;
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    *header = good;
    header->next_offset = CL_POOL_SIZE - SIZE + SIZE; /* one too far */
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    *header = good;
    header->count = CAPACITY + 1;
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    *header = good;
    header->count--; /* a block is neither used nor free */
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    *header = good;
    header->freeblock += 8;
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    *header = good;
    header->freeblock = (uint64_t)(uintptr_t)memory - SIZE; /* outside */
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    *header = good;
    memcpy(block(memory, 1), &good.freeblock, 8); /* a ring */
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    CHECK(cl_pool_validate(memory, (uint64_t)(uintptr_t)memory + 64, &pool,
                           NULL) == -EBADMSG);
    free(memory);
}

static void
sealed_and_reset(void)
{
    struct cl_pool pool;
    unsigned char *memory = make_pool(100, 10);
    struct cl_pool_header *header = (struct cl_pool_header *)(void *)memory;
    header->freeblock = 0;
    header->next_offset = END;
    CHECK(validate(memory, &pool, NULL) == 0);
    CHECK(pool.retired == CAPACITY - 10 && pool.free + pool.virgin == 0);
    header->size_class = CL_POOL_EMPTY;
    CHECK(validate(memory, &pool, NULL) == -EBADMSG);
    header->count = 0;
    CHECK(validate(memory, &pool, NULL) == 0 && pool.capacity == 0);
    free(memory);
}

static void
trimmed(void)
{
    struct cl_pool pool;
    unsigned char blocks[1021];
    struct cl_trim trim = {0};
    uint32_t drop;
    /* Survivors on pages 0 and 2 only: block 0 and block 150. */
    unsigned char *memory = make_pool(CAPACITY, 150);
    CHECK(validate(memory, &pool, blocks) == 0 && pool.used == 2);
    cl_trim_pool(memory, &pool, blocks, 4096, 15, &drop, &trim);
    CHECK(drop == ((1u << 1) | (1u << 3)));
    /* Dropping them changes nothing that matters. */
    memset(memory + 4096, 0, 4096);
    memset(memory + 3 * 4096, 0, 4096);
    CHECK(validate(memory, &pool, blocks) == 0);
    CHECK(pool.used == 2 && pool.virgin == 0);
    CHECK(pool.retired == trim.blocks_retired && pool.retired > 120);
    CHECK(pool.free == trim.blocks_left && pool.free > 100);
    for (uint32_t i = 0; i < SIZE; i++) {
        CHECK(block(memory, 0)[i] == 0xab && block(memory, 150)[i] == 0xab);
    }
    /* Again: there is nothing more to give. */
    cl_trim_pool(memory, &pool, blocks, 4096, 5, &drop, &trim);
    CHECK(drop == 0);
    free(memory);

    /* Pages that are not there are not worth a block. */
    memory = make_pool(CAPACITY, 150);
    CHECK(validate(memory, &pool, blocks) == 0);
    cl_trim_pool(memory, &pool, blocks, 4096, 1, &drop, &trim);
    CHECK(drop == 0 && validate(memory, &pool, NULL) == 0);
    CHECK(pool.retired == 0);
    /* A page as large as a pool holds the header. */
    cl_trim_pool(memory, &pool, blocks, CL_POOL_SIZE, 1, &drop, &trim);
    CHECK(drop == 0);
    free(memory);
}

static void
left_alone_and_emptied(void)
{
    struct cl_pool pool;
    unsigned char blocks[1021];
    struct cl_trim trim = {0};
    uint32_t drop;
    /* Everything on page 0 in use, everything behind it free or unused. */
    unsigned char *memory = make_pool(70, 1);
    CHECK(validate(memory, &pool, blocks) == 0 && pool.free == 0);
    cl_trim_pool(memory, &pool, blocks, 4096, 15, &drop, &trim);
    CHECK(drop == 0 && trim.pools_left == 1);
    CHECK(validate(memory, &pool, NULL) == 0 && pool.retired == 0);
    free(memory);

    memory = make_pool(CAPACITY, CAPACITY + 1);
    struct cl_pool_header *header = (struct cl_pool_header *)(void *)memory;
    memcpy(block(memory, 0), &header->freeblock, 8);
    header->freeblock = (uint64_t)(uintptr_t)block(memory, 0);
    header->count = 0;
    CHECK(validate(memory, &pool, blocks) == 0 && pool.used == 0);
    cl_trim_pool(memory, &pool, blocks, 4096, 15, &drop, &trim);
    CHECK(drop == 14 && header->size_class == CL_POOL_EMPTY);
    CHECK(trim.pools_reset == 1 && validate(memory, &pool, NULL) == 0);
    free(memory);
}

static int
count_and_check(uint64_t address, void *arg)
{
    uint64_t *state = arg; /* the last one, and how many */
    CHECK(address > state[0]);
    state[0] = address;
    state[1]++;
    return 0;
}

static void
sets(void)
{
    struct cl_addrs set = {0};
    CHECK(!cl_addrs_has(&set, 64) && cl_addrs_before(&set, 64, 64) == 0);
    uint64_t value = 12345, added = 0;
    for (int i = 0; i < 20000; i++) {
        value = value * 6364136223846793005ull + 1442695040888963407ull;
        /* Near each other and far apart. */
        uint64_t address = (value >> (i % 2 ? 17 : 40)) & ~7ull;
        int result = cl_addrs_add(&set, address | 8);
        CHECK(result >= 0 && cl_addrs_has(&set, address | 8));
        CHECK(cl_addrs_add(&set, address | 8) == 0);
        CHECK(!cl_addrs_has(&set, (address | 8) + 1));
        CHECK(cl_addrs_before(&set, (address | 8) + 7, 8) == (address | 8));
        added += (uint64_t)result;
    }
    uint64_t state[2] = {0, 0};
    CHECK(cl_addrs_each(&set, count_and_check, state) == 0);
    CHECK(state[1] == added && set.count == added);
    cl_addrs_release(&set);

    /* Across the border of a span, and no further than asked. */
    CHECK(cl_addrs_add(&set, (5u << 20) - 8) == 1);
    CHECK(cl_addrs_before(&set, (5u << 20) + 40, 64) == (5u << 20) - 8);
    CHECK(cl_addrs_before(&set, (5u << 20) + 40, 48) == 0);
    CHECK(cl_addrs_before(&set, (5u << 20) - 16, 4096) == 0);
    cl_addrs_release(&set);
}

int
main(void)
{
    recognised_and_refused();
    sealed_and_reset();
    trimmed();
    left_alone_and_emptied();
    sets();
    return check_failures();
}
