/* Sets of addresses as bitmaps. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cl_addrs.h"

#define FIRST_SLOTS 4096u

static struct cl_addrs_slot *
slots(const struct cl_addrs *set)
{
    return (struct cl_addrs_slot *)(void *)set->index.data;
}

static const uint64_t *
map_at(const struct cl_addrs *set, uint64_t map)
{
    return (const uint64_t *)(const void *)set->maps.data +
           map * CL_ADDRS_WORDS;
}

static struct cl_addrs_slot *
find(struct cl_addrs_slot *table, size_t mask, uint64_t key)
{
    size_t i = (key * 0x9e3779b97f4a7c15ull >> 20) & mask;
    while (table[i].key != 0 && table[i].key != key) {
        i = (i + 1) & mask;
    }
    return &table[i];
}

/* Room for one span more, at a load of at most one half. */
static int
grow(struct cl_addrs *set)
{
    if (set->mask != 0 && 2 * (set->nspans + 1) <= set->mask) {
        return 0;
    }
    size_t count = set->mask == 0 ? FIRST_SLOTS : 2 * (set->mask + 1);
    struct cl_buf larger = {0};
    int err = cl_buf_reserve(&larger, count * sizeof(struct cl_addrs_slot));
    if (err < 0) {
        return err;
    }
    struct cl_addrs_slot *to = (struct cl_addrs_slot *)(void *)larger.data;
    for (size_t i = 0; set->mask != 0 && i <= set->mask; i++) {
        if (slots(set)[i].key != 0) {
            *find(to, count - 1, slots(set)[i].key) = slots(set)[i];
        }
    }
    cl_buf_release(&set->index);
    set->index = larger;
    set->mask = count - 1;
    return 0;
}

int
cl_addrs_span(struct cl_addrs *set, uint64_t key)
{
    int err = grow(set);
    if (err < 0) {
        return err;
    }
    struct cl_addrs_slot *slot = find(slots(set), set->mask, key);
    if (slot->key == 0) {
        size_t bytes = CL_ADDRS_WORDS * sizeof(uint64_t);
        err = cl_buf_reserve(&set->maps, (set->nspans + 1) * bytes);
        if (err < 0) {
            return err;
        }
        *slot = (struct cl_addrs_slot){key, set->nspans++};
    }
    set->last_key = key;
    set->last_map = (uint32_t)slot->map;
    return 0;
}

static const uint64_t *
map_of(const struct cl_addrs *set, uint64_t address)
{
    if (set->mask == 0) {
        return NULL;
    }
    uint64_t key = (address >> CL_ADDRS_SPAN_BITS) + 1;
    const struct cl_addrs_slot *slot = find(slots(set), set->mask, key);
    return slot->key == 0 ? NULL : map_at(set, slot->map);
}

static uint32_t
bit_of(uint64_t address)
{
    return (uint32_t)(address >> 3) & ((1u << (CL_ADDRS_SPAN_BITS - 3)) - 1);
}

bool
cl_addrs_has(const struct cl_addrs *set, uint64_t address)
{
    const uint64_t *map = address % 8 == 0 ? map_of(set, address) : NULL;
    uint32_t bit = bit_of(address);
    return map != NULL && (map[bit >> 6] >> (bit & 63) & 1) != 0;
}

uint64_t
cl_addrs_before(const struct cl_addrs *set, uint64_t address, uint64_t within)
{
    uint64_t low = address >= within ? address - within + 1 : 0;
    uint64_t at = address & ~7ull;
    while (at >= low) {
        uint64_t span = at >> CL_ADDRS_SPAN_BITS << CL_ADDRS_SPAN_BITS;
        const uint64_t *map = map_of(set, at);
        for (int64_t word = bit_of(at) >> 6; map != NULL && word >= 0;
             word--) {
            uint64_t base = span + ((uint64_t)word << 9);
            uint64_t bits = map[word];
            if (base + 504 > at) {
                uint32_t top = (uint32_t)(at - base) >> 3;
                bits &= top == 63 ? ~0ull : (1ull << (top + 1)) - 1;
            }
            if (bits != 0) {
                uint64_t found =
                    base + 8 * (uint64_t)(63 - __builtin_clzll(bits));
                return found >= low ? found : 0;
            }
            if (base <= low) {
                return 0;
            }
        }
        if (span == 0) {
            return 0;
        }
        at = span - 8;
    }
    return 0;
}

static int
by_key(const void *a, const void *b)
{
    uint64_t x = ((const struct cl_addrs_slot *)a)->key;
    uint64_t y = ((const struct cl_addrs_slot *)b)->key;
    return (x > y) - (x < y);
}

int
cl_addrs_each(const struct cl_addrs *set,
              int (*each)(uint64_t address, void *arg), void *arg)
{
    struct cl_buf sorted = {0};
    size_t n = 0;
    if (set->nspans == 0) {
        return 0;
    }
    int result =
        cl_buf_reserve(&sorted, set->nspans * sizeof(struct cl_addrs_slot));
    struct cl_addrs_slot *order = (struct cl_addrs_slot *)(void *)sorted.data;
    for (size_t i = 0; result == 0 && set->mask != 0 && i <= set->mask; i++) {
        if (slots(set)[i].key != 0) {
            order[n++] = slots(set)[i];
        }
    }
    qsort(order, n, sizeof *order, by_key);
    for (size_t i = 0; i < n && result == 0; i++) {
        uint64_t span = (order[i].key - 1) << CL_ADDRS_SPAN_BITS;
        const uint64_t *map = map_at(set, order[i].map);
        for (uint32_t word = 0; word < CL_ADDRS_WORDS && result == 0; word++) {
            uint64_t bits = map[word];
            for (; bits != 0 && result == 0; bits &= bits - 1) {
                uint32_t bit = word * 64 + (uint32_t)__builtin_ctzll(bits);
                result = each(span + 8 * (uint64_t)bit, arg);
            }
        }
    }
    cl_buf_release(&sorted);
    return result;
}

void
cl_addrs_release(struct cl_addrs *set)
{
    cl_buf_release(&set->index);
    cl_buf_release(&set->maps);
    *set = (struct cl_addrs){0};
}
