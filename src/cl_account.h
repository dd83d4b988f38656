/* What became of the pages that a child inherited: differences of readings. */
#ifndef COWLAB_CL_ACCOUNT_H
#define COWLAB_CL_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "cl_pages.h"

enum cl_fate {
    CL_FATE_KEPT,    /* still shared */
    CL_FATE_COPIED,  /* written by this process */
    CL_FATE_SOLE,    /* never written by it, now mapped by it alone */
    CL_FATE_DROPPED, /* no longer mapped */
    CL_FATE_UNKNOWN, /* swapped out, or was */
};

/* The fate of one inherited page, from its byte at the earlier moment, and
 * its byte at the later one: with a witness alive, when exclusive means
 * "copied by this process", and without, when it means "mapped by it alone".
 */
static inline enum cl_fate
cl_page_fate(uint8_t earlier, uint8_t witnessed, uint8_t alone)
{
    if ((earlier | witnessed) & CL_PAGE_SWAPPED) {
        return CL_FATE_UNKNOWN;
    }
    if (!cl_page_is_own(witnessed)) {
        return CL_FATE_DROPPED;
    }
    if (witnessed & CL_PAGE_EXCLUSIVE) {
        return CL_FATE_COPIED;
    }
    return alone & CL_PAGE_EXCLUSIVE ? CL_FATE_SOLE : CL_FATE_KEPT;
}

/* Whether the page counts as inherited by whoever reads this byte of it. */
static inline bool
cl_page_is_inherited(uint8_t page)
{
    return cl_page_is_own(page) || (page & CL_PAGE_SWAPPED);
}

struct cl_tally {
    int64_t inherited, kept, copied, sole, dropped, unknown;
    int64_t fresh; /* growth of private pages that were not inherited */
};

/* Account for the pages of `base` (inherited: every one for which
 * cl_page_is_inherited) at a later moment, read twice: `witnessed`, `alone`.
 * `before` is the reading without a witness at the earlier moment, or NULL
 * where nothing was private yet; fresh is the growth from it. `left`, if not
 * NULL, gets the pages whose fate is still open (kept, unknown): the base of
 * the next account. 0 or -ENOMEM. */
int cl_account(const struct cl_pages *base, const struct cl_pages *before,
               const struct cl_pages *witnessed, const struct cl_pages *alone,
               struct cl_pages *left, struct cl_tally by_kind[CL_NKINDS]);

#endif
