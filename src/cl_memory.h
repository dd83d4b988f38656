/* Objects in another process's memory, or in one's own seen the same way. */
#ifndef COWLAB_CL_MEMORY_H
#define COWLAB_CL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cl_object.h"
#include "cl_proc.h"
#include "cl_where.h"

#define CL_TYPE_NAME 32

/* What there is to know of a type, or of what turned out to be none. */
struct cl_type {
    uint64_t address;
    bool is_type;
    uint64_t flags;
    int64_t basicsize, itemsize, dict_offset, weak_offset;
    uint32_t prefix; /* bytes before an instance in its block */
    char name[CL_TYPE_NAME];
};

#define CL_TYPE_SLOTS 8192u /* a power of two */

#define CL_MEMORY_PAGES 8192u /* kept at a time; a power of two */

#define CL_MEMORY_ENTRIES 512u /* of the page map, kept at a time */

/* /proc/PID/mem with the pages read last, and the types met so far. The memory
 * must not change meanwhile. Start from {0}. */
struct cl_memory {
    int fd;
    int map;         /* /proc/PID/pagemap; 0: cannot be had */
    uint64_t page;   /* size, bytes */
    uint64_t window; /* number of the first page of `entries`, plus 1 */
    uint64_t entries[CL_MEMORY_ENTRIES];
    struct cl_buf pages;
    uint64_t numbers[CL_MEMORY_PAGES]; /* of the page kept there, plus 1 */
    bool is_mapped[CL_MEMORY_PAGES];
    struct cl_type types[CL_TYPE_SLOTS];
};

int cl_memory_open(struct cl_memory *memory, pid_t pid);
void cl_memory_close(struct cl_memory *memory);
uint64_t cl_memory_page(const struct cl_memory *memory);
bool cl_memory_read(struct cl_memory *memory, uint64_t at, void *to,
                    size_t len);

/* Whether the page at `at`, of private memory without a file, can have
 * contents of its own. Ask before a search: to read a page that has none gives
 * the process the zero page there, and a hole can be a terabyte. */
bool cl_memory_touched(struct cl_memory *memory, uint64_t at);
bool cl_memory_word(struct cl_memory *memory, uint64_t at, uint64_t *word);

/* An object that begins in a block. */
struct cl_found {
    uint64_t object;
    struct cl_type type;
};

/* The object in the block of `size` bytes, if it holds one. */
bool cl_object_find(struct cl_memory *memory,
                    const struct cl_object_layout *layout, uint64_t block,
                    uint64_t size, struct cl_found *found);

/* The same for a block whose bytes are at hand. */
bool cl_object_find_in(struct cl_memory *memory,
                       const struct cl_object_layout *layout, uint64_t block,
                       const unsigned char *bytes, uint64_t size,
                       struct cl_found *found);

/* The field at `offset` bytes from an object of `type`. */
enum cl_field cl_object_field(const struct cl_object_layout *layout,
                              const struct cl_type *type, int64_t offset);

#endif
