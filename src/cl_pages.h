/* The private pages of one process at one moment, one byte each. */
#ifndef COWLAB_CL_PAGES_H
#define COWLAB_CL_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cl_maps.h"
#include "cl_proc.h"

/* Where a page lies. */
enum cl_kind {
    CL_KIND_PYMALLOC,  /* a pool of pymalloc */
    CL_KIND_HEAP,      /* the brk heap */
    CL_KIND_ANONYMOUS, /* other anonymous memory */
    CL_KIND_IMAGE,     /* a private file mapping, or the bss behind it */
    CL_KIND_STACK,     /* the main thread's stack */
    CL_NKINDS
};

/* The byte of a page. 0: nothing there. The kind is in the upper three bits.
 */
enum {
    CL_PAGE_PRESENT = 1,
    CL_PAGE_SWAPPED = 2,
    CL_PAGE_FILE = 4,      /* an unwritten page of the file */
    CL_PAGE_EXCLUSIVE = 8, /* no other process maps it */
    CL_PAGE_ZERO = 16,     /* the shared zero page */
    CL_PAGE_KIND_SHIFT = 5,
};

static inline enum cl_kind
cl_page_kind(uint8_t page)
{
    return (enum cl_kind)(page >> CL_PAGE_KIND_SHIFT);
}

/* Whether the page is in memory, with contents that are no file's. */
static inline bool
cl_page_is_own(uint8_t page)
{
    return (page & (CL_PAGE_PRESENT | CL_PAGE_FILE | CL_PAGE_ZERO)) ==
           CL_PAGE_PRESENT;
}

#define CL_GRANULE 512u /* pages; one leaf of x86-64's page table */

struct cl_granule {
    uint64_t number; /* of its first page, divided by CL_GRANULE */
    uint8_t pages[CL_GRANULE];
};

/* Granules with at least one populated private page, by address. From {0}. */
struct cl_pages {
    struct cl_buf maps;     /* the text of /proc/PID/maps */
    struct cl_buf granules; /* struct cl_granule[] */
    uint64_t own;           /* pages for which cl_page_is_own held */
    uint64_t shared_memory; /* populated pages of MAP_SHARED mappings that no
                               other process maps */
};

static inline size_t
cl_pages_count(const struct cl_pages *pages)
{
    return pages->granules.len / sizeof(struct cl_granule);
}

static inline struct cl_granule *
cl_pages_granule(const struct cl_pages *pages, size_t i)
{
    return (struct cl_granule *)(void *)pages->granules.data + i;
}

/* Read maps and page map of `pid`. 0 or -errno, as cl_proc_read. Holes cost
 * next to nothing where the kernel has PAGEMAP_SCAN. */
int cl_pages_read(pid_t pid, struct cl_pages *pages);

void cl_pages_release(struct cl_pages *pages);

/* The index of the first granule with that number or a higher one. */
size_t cl_pages_find(const struct cl_pages *pages, uint64_t number);

/* Append a page, by its number, in ascending order. 0 or -ENOMEM. */
int cl_pages_put(struct cl_pages *pages, uint64_t page, uint8_t byte);

/* The byte of the page at `addr`; 0 where nothing is. */
uint8_t cl_pages_at(const struct cl_pages *pages, uint64_t addr);

/* Something that looks at memory: it sets to 0 each address where there is no
 * header of a pool. 0 or -errno. */
struct cl_pool_finder {
    int (*find)(void *context, uint64_t *addresses, size_t n);
    void *context;
};

/* Give pages in pools of pymalloc their kind, by looking where a pool can
 * start. Pages that `known` has take its kind and are not looked at; NULL:
 * look at all. 0 or -errno. */
int cl_pages_mark_pools(struct cl_pages *pages, const struct cl_pages *known,
                        const struct cl_pool_finder *finder);

/* Tell `missing` pages, the shared zero page again and again, from pages with
 * contents; small mappings first, until all are found. 0, -ENOTTY where this
 * kernel has no PAGEMAP_SCAN, or -errno. */
int cl_pages_mark_zero(pid_t pid, struct cl_pages *pages, uint64_t missing);

/* How a mapping's pages are accounted; -1 for one that is not (MAP_SHARED, or
 * the kernel's own). `follows_image`: the mapping just below, without a gap,
 * is of CL_KIND_IMAGE. */
int cl_map_kind(const struct cl_map *map, bool follows_image);

/* Walk several readings side by side, by address: the next granule number
 * that any of them has, and each reading's granule of it (NULL: none). */
#define CL_WALK_MAX 4

struct cl_walk {
    const struct cl_pages *readings[CL_WALK_MAX];
    size_t positions[CL_WALK_MAX];
    size_t n;
    uint64_t number;
    struct cl_granule *granules[CL_WALK_MAX];
};

bool cl_walk_next(struct cl_walk *walk);

#endif
