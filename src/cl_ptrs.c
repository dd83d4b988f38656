#include "cl_ptrs.h"

#include <errno.h>
#include <sys/mman.h>

#define FIRST_SLOTS ((size_t)1 << 14)
#define FIRST_ROOM ((size_t)1 << 13)

/* Zeroed words, or NULL. */
static uintptr_t *
words_map(size_t n)
{
    void *at = mmap(NULL, n * sizeof(uintptr_t), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void
words_unmap(uintptr_t *words, size_t n)
{
    if (words != NULL) {
        munmap(words, n * sizeof(uintptr_t));
    }
}

/* Objects lie 16 bytes apart at least: the low four bits say nothing. */
static size_t
slot_of(uintptr_t address, size_t mask)
{
    uint64_t mixed = ((uint64_t)address >> 4) * 0x9e3779b97f4a7c15u;
    return (size_t)(mixed >> 20) & mask;
}

/* The slot that holds `address`, or the free one where it belongs. */
static uintptr_t *
find(const struct cl_ptrset *set, uintptr_t address)
{
    size_t i = slot_of(address, set->mask);
    while (set->slots[i] != 0 && set->slots[i] != address) {
        i = (i + 1) & set->mask;
    }
    return &set->slots[i];
}

static int
set_grow(struct cl_ptrset *set)
{
    size_t slots = set->slots == NULL ? FIRST_SLOTS : (set->mask + 1) * 2;
    struct cl_ptrset grown = {words_map(slots), slots - 1, set->used};
    if (grown.slots == NULL) {
        return -ENOMEM;
    }
    if (set->slots != NULL) {
        for (size_t i = 0; i <= set->mask; i++) {
            if (set->slots[i] != 0) {
                *find(&grown, set->slots[i]) = set->slots[i];
            }
        }
        words_unmap(set->slots, set->mask + 1);
    }
    *set = grown;
    return 0;
}

int
cl_ptrset_add(struct cl_ptrset *set, uintptr_t address)
{
    /* Grown at three slots in five: longer probes cost more than the room. */
    if (set->slots == NULL || set->used >= (set->mask + 1) / 5 * 3) {
        int err = set_grow(set);
        if (err < 0) {
            return err;
        }
    }
    uintptr_t *slot = find(set, address);
    if (*slot == address) {
        return 0;
    }
    *slot = address;
    set->used++;
    return 1;
}

bool
cl_ptrset_has(const struct cl_ptrset *set, uintptr_t address)
{
    return set->slots != NULL && *find(set, address) == address;
}

void
cl_ptrset_release(struct cl_ptrset *set)
{
    words_unmap(set->slots, set->mask + 1);
    *set = (struct cl_ptrset){0};
}

int
cl_ptrstack_push(struct cl_ptrstack *stack, uintptr_t address)
{
    if (stack->used == stack->room) {
        size_t room = stack->room == 0 ? FIRST_ROOM : stack->room * 2;
        uintptr_t *items = words_map(room);
        if (items == NULL) {
            return -ENOMEM;
        }
        for (size_t i = 0; i < stack->used; i++) {
            items[i] = stack->items[i];
        }
        words_unmap(stack->items, stack->room);
        stack->items = items;
        stack->room = room;
    }
    stack->items[stack->used++] = address;
    return 0;
}

void
cl_ptrstack_release(struct cl_ptrstack *stack)
{
    words_unmap(stack->items, stack->room);
    *stack = (struct cl_ptrstack){0};
}
