/* Sets and stacks of addresses, in mappings of their own: a walk over the heap
 * must not allocate from the heap. Start both from {0}. */
#ifndef COWLAB_CL_PTRS_H
#define COWLAB_CL_PTRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cl_ptrset {
    uintptr_t *slots; /* 0: free */
    size_t mask;      /* slots - 1 */
    size_t used;
};

/* 1 added, 0 it was there, -ENOMEM. `address` is not 0. */
int cl_ptrset_add(struct cl_ptrset *set, uintptr_t address);

bool cl_ptrset_has(const struct cl_ptrset *set, uintptr_t address);

/* Unmap; leaves {0}. */
void cl_ptrset_release(struct cl_ptrset *set);

struct cl_ptrstack {
    uintptr_t *items;
    size_t used, room;
};

/* 0 or -ENOMEM. */
int cl_ptrstack_push(struct cl_ptrstack *stack, uintptr_t address);

/* The last one pushed, or 0 where there is none. */
static inline uintptr_t
cl_ptrstack_pop(struct cl_ptrstack *stack)
{
    return stack->used == 0 ? 0 : stack->items[--stack->used];
}

/* Unmap; leaves {0}. */
void cl_ptrstack_release(struct cl_ptrstack *stack);

#endif
