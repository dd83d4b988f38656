/* See cl_libc.h. */
#include "cl_libc.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cl_maps.h"

bool
cl_brk_heap(const char *maps, size_t len, uint64_t *start, uint64_t *end)
{
    const char *at = maps;
    struct cl_map map;
    *start = *end = 0;
    while (cl_maps_next(&at, maps + len, &map) == 1) {
        if (cl_map_is(&map, "[heap]")) {
            *start = *end == 0 ? map.start : *start;
            *end = map.end;
        }
    }
    return *end != 0;
}

bool
cl_chunk_at(struct cl_memory *memory, uint64_t heap_end, uint64_t at,
            struct cl_chunk *out)
{
    uint64_t size, after = 0;
    if (at + CL_CHUNK_HEADER > heap_end ||
        !cl_memory_word(memory, at + 8, &size)) {
        return false;
    }
    uint64_t len = size & ~(uint64_t)CL_CHUNK_FLAGS;
    if (len < 32 || len % 16 != 0 || len > heap_end - at) {
        return false;
    }
    out->start = at;
    out->size = len;
    /* Whether it is in use, the next chunk says; the top has none. */
    out->top = at + len + CL_CHUNK_HEADER > heap_end;
    out->in_use = !out->top && cl_memory_word(memory, at + len + 8, &after) &&
                  (after & CL_CHUNK_PREV_IN_USE);
    return true;
}

/* ---- Sealing ---- */

/* What malloc can be asked for to be given a chunk of this size. */
#define REQUEST(chunk) ((chunk) - sizeof(uint64_t))

/* Chunks up to this size are kept for their thread when they are freed. */
#define TCACHE_MAX 1040u
#define TCACHE_COUNT 16u /* so many of each size, or fewer */

/* A chunk takes 32 bytes or more: against lists that do not end. */
#define BLOCKS_MAX (1u << 26)

/* So many chunks in a row that malloc has elsewhere: these are not its own. */
#define ELSEWHERE_MAX 64u

struct free_chunks {
    struct cl_buf sizes; /* of uint64_t */
    size_t n;
    uint64_t start, top; /* addresses of the first chunk and of the last */
};

static int
note_size(struct free_chunks *chunks, uint64_t size)
{
    size_t need = (chunks->n + 1) * sizeof size;
    int err = cl_buf_reserve(&chunks->sizes, need);
    if (err < 0) {
        return err;
    }
    memcpy(chunks->sizes.data + need - sizeof size, &size, sizeof size);
    chunks->n++;
    return 0;
}

/* Go through the heap from end to end. 0, -ENOTSUP where it is not glibc's. */
static int
find_free(struct cl_memory *memory, uint64_t start, uint64_t end,
          struct free_chunks *chunks)
{
    struct cl_chunk chunk;
    for (uint64_t at = start; cl_chunk_at(memory, end, at, &chunk);
         at += chunk.size) {
        if (chunk.top) {
            chunks->top = at;
            return 0;
        }
        int err = chunk.in_use ? 0 : note_size(chunks, chunk.size);
        if (err < 0) {
            return err;
        }
    }
    return -ENOTSUP;
}

/* Take one chunk. Its address, or 0. */
static uint64_t
take(struct cl_libc_seal *seal, uint64_t size)
{
    void **block = malloc(REQUEST(size));
    if (block == NULL) {
        return 0;
    }
    *block = seal->held;
    seal->held = block;
    seal->blocks++;
    seal->bytes += size;
    return (uint64_t)(uintptr_t)block;
}

/* Give the last one back. */
static void
untake(struct cl_libc_seal *seal, uint64_t size)
{
    void **block = seal->held;
    seal->held = *block;
    seal->blocks--;
    seal->bytes -= size;
    free(block);
}

/* Take those of at least `low` and less than `high` bytes: where there is a
 * chunk of just that size malloc gives no other. One from elsewhere is not
 * kept: another thread was faster. False where all come from elsewhere: this
 * thread is not given anything of this heap. */
static bool
take_sizes(struct cl_libc_seal *seal, const struct free_chunks *chunks,
           uint64_t low, uint64_t high)
{
    unsigned elsewhere = 0;
    for (size_t i = 0; i < chunks->n && elsewhere < ELSEWHERE_MAX; i++) {
        uint64_t size;
        memcpy(&size, chunks->sizes.data + i * sizeof size, sizeof size);
        if (size < low || size >= high) {
            continue;
        }
        uint64_t at = take(seal, size);
        if (at >= chunks->start && at < chunks->top) {
            elsewhere = 0;
            continue;
        }
        elsewhere++;
        if (at != 0) {
            untake(seal, size);
        }
    }
    return elsewhere < ELSEWHERE_MAX;
}

/* Small ones wait in lists of their own as well, where they look in use: ask
 * for each size until one comes from beyond the heap. */
static void
take_small(struct cl_libc_seal *seal, uint64_t top)
{
    for (uint64_t size = TCACHE_MAX; size >= 32; size -= 16) {
        uint64_t at;
        do {
            at = take(seal, size);
        } while (at != 0 && at < top && seal->blocks < BLOCKS_MAX);
    }
}

/* Join what is free, and give back what of it can go: whole pages, and the end
 * of the heap. */
static void
tidy(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* Free what is held, so that the end of the heap can go. What is freed first
 * stays in the lists of small ones, where it would hold up all below it: these
 * are emptied before, and filled with what was taken first, at the beginning
 * of the heap. */
static void
give_back(struct cl_libc_seal *seal)
{
    for (uint64_t size = TCACHE_MAX; size >= 32; size -= 16) {
        for (unsigned i = 0; i < TCACHE_COUNT; i++) {
            take(seal, size);
        }
    }
    void **reversed = NULL;
    while (seal->held != NULL) {
        void **next = *seal->held;
        *seal->held = reversed;
        reversed = seal->held;
        seal->held = next;
    }
    seal->held = reversed;
    cl_libc_unseal(seal);
    tidy();
}

static int
take_all(struct cl_libc_seal *seal, struct cl_memory *memory, uint64_t start,
         uint64_t end)
{
    struct free_chunks chunks = {.start = start};
    int err = find_free(memory, start, end, &chunks);
    if (err < 0) {
        goto done;
    }
    if (take_sizes(seal, &chunks, TCACHE_MAX, UINT64_MAX) &&
        take_sizes(seal, &chunks, 0, TCACHE_MAX)) {
        take_small(seal, chunks.top);
    } else if (seal->blocks == 0) {
        err = -ENOTSUP;
    }
done:
    cl_buf_release(&chunks.sizes);
    return err;
}

int
cl_libc_seal(struct cl_libc_seal *seal)
{
    struct cl_buf maps = {0};
    uint64_t start = 0, end = 0;
    if (getpid() != (pid_t)syscall(SYS_gettid)) {
        return -ENOTSUP;
    }
    struct cl_memory *memory =
        mmap(NULL, sizeof *memory, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return -ENOMEM;
    }
    int err = cl_memory_open(memory, 0);
    if (err < 0) {
        goto unmap;
    }
    give_back(seal); /* or what is held would grow from seal to seal */
    if ((err = cl_proc_read(0, "maps", &maps)) < 0) {
        goto done;
    }
    if (cl_brk_heap(maps.data, maps.len, &start, &end)) {
        err = take_all(seal, memory, start, end);
        tidy(); /* what is beyond comes fresh, too */
    } else {
        err = -ENOTSUP;
    }
done:
    cl_buf_release(&maps);
    cl_memory_close(memory);
unmap:
    munmap(memory, sizeof *memory);
    return err;
}

void
cl_libc_unseal(struct cl_libc_seal *seal)
{
    void **block = seal->held;
    while (block != NULL) {
        void **next = *block;
        free(block);
        block = next;
    }
    *seal = (struct cl_libc_seal){0};
}
