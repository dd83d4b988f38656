/* A set of addresses as bitmaps: a bit for every 8 bytes of each MiB that has
 * a member, in a mapping of its own. Small where members lie close together,
 * as objects do, and in the order of addresses by itself. Start from {0}. */
#ifndef COWLAB_CL_ADDRS_H
#define COWLAB_CL_ADDRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cl_proc.h"

#define CL_ADDRS_SPAN_BITS 20
#define CL_ADDRS_WORDS (1u << (CL_ADDRS_SPAN_BITS - 3 - 6))

struct cl_addrs {
    struct cl_buf index; /* hash table of struct cl_addrs_slot */
    struct cl_buf maps;  /* CL_ADDRS_WORDS words for each span */
    size_t mask;         /* slots - 1 */
    size_t nspans;
    size_t count;      /* members */
    uint64_t last_key; /* of the span used last, + 1 */
    uint32_t last_map; /* its bitmap */
};

struct cl_addrs_slot {
    uint64_t key; /* address >> CL_ADDRS_SPAN_BITS, + 1; 0: free */
    uint64_t map;
};

/* Find or make the bitmap of the span of `key` (address >> 20, + 1) and make
 * it the last one. 0 or -ENOMEM. */
int cl_addrs_span(struct cl_addrs *set, uint64_t key);

/* 1 added, 0 it was there, -ENOMEM. The address is a multiple of 8. */
static inline int
cl_addrs_add(struct cl_addrs *set, uint64_t address)
{
    uint64_t key = (address >> CL_ADDRS_SPAN_BITS) + 1;
    if (key != set->last_key) {
        int err = cl_addrs_span(set, key);
        if (err < 0) {
            return err;
        }
    }
    uint64_t *map = (uint64_t *)(void *)set->maps.data +
                    (size_t)set->last_map * CL_ADDRS_WORDS;
    uint32_t bit =
        (uint32_t)(address >> 3) & ((1u << (CL_ADDRS_SPAN_BITS - 3)) - 1);
    uint64_t one = 1ull << (bit & 63);
    if (map[bit >> 6] & one) {
        return 0;
    }
    map[bit >> 6] |= one;
    set->count++;
    return 1;
}

bool cl_addrs_has(const struct cl_addrs *set, uint64_t address);

/* The greatest member that is <= address and > address - within, or 0. */
uint64_t cl_addrs_before(const struct cl_addrs *set, uint64_t address,
                         uint64_t within);

/* Call each(address, arg) for every member, ascending, until it returns other
 * than 0; returns that. -ENOMEM where there was no room to sort the spans. */
int cl_addrs_each(const struct cl_addrs *set,
                  int (*each)(uint64_t address, void *arg), void *arg);

/* Unmap; leaves {0}. */
void cl_addrs_release(struct cl_addrs *set);

#endif
