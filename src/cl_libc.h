/* glibc's malloc: the chunks of its brk heap, and taking the free ones out of
 * use before a fork, so that a child's buffers do not copy the shared pages on
 * which these lie. Nothing of this holds for another malloc: it is recognised
 * by where its blocks lie, not by its name. */
#ifndef COWLAB_CL_LIBC_H
#define COWLAB_CL_LIBC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cl_memory.h"

/* A chunk is a word of the previous one's, its own size with three flags, and
 * what malloc returned. */
#define CL_CHUNK_HEADER 16u
#define CL_CHUNK_PREV_IN_USE 1u
#define CL_CHUNK_MMAPPED 2u
#define CL_CHUNK_FLAGS 7u

struct cl_chunk {
    uint64_t start, size; /* with its header */
    bool in_use;          /* tcache and fastbins look in use, too */
    bool top;             /* the last one, from which new ones are cut */
};

/* Where the brk heap begins and ends, from the text of maps: in a child that
 * let it grow it is two mappings or more. False where there is none. */
bool cl_brk_heap(const char *maps, size_t len, uint64_t *start, uint64_t *end);

/* The chunk that begins at `at` in a heap that ends at `heap_end`. False where
 * none does. */
bool cl_chunk_at(struct cl_memory *memory, uint64_t heap_end, uint64_t at,
                 struct cl_chunk *out);

/* Free chunks that were taken out of use: a list through themselves. */
struct cl_libc_seal {
    void **held;
    uint64_t blocks, bytes;
};

/* Allocate every free chunk of this process's brk heap, so that what is
 * allocated next comes from beyond it. What `seal` held before is freed first,
 * unless this is not the main thread: only that has this heap for sure. 0,
 * -ENOTSUP (another thread, or a heap from which malloc gives this one
 * nothing: in a child that a thread forked, or where malloc is not glibc's) or
 * -errno. */
int cl_libc_seal(struct cl_libc_seal *seal);

/* Free what a seal holds. */
void cl_libc_unseal(struct cl_libc_seal *seal);

#endif
