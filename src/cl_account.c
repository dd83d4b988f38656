#include "cl_account.h"

#include <string.h>

static const uint8_t no_pages[CL_GRANULE];

static const uint8_t *
row(const struct cl_walk *walk, size_t i)
{
    return walk->granules[i] ? walk->granules[i]->pages : no_pages;
}

static bool
is_exclusive(uint8_t page)
{
    return cl_page_is_own(page) && (page & CL_PAGE_EXCLUSIVE);
}

static void
count_fate(struct cl_tally *tally, enum cl_fate fate)
{
    tally->inherited++;
    switch (fate) {
    case CL_FATE_KEPT:
        tally->kept++;
        break;
    case CL_FATE_COPIED:
        tally->copied++;
        break;
    case CL_FATE_SOLE:
        tally->sole++;
        break;
    case CL_FATE_DROPPED:
        tally->dropped++;
        break;
    case CL_FATE_UNKNOWN:
        tally->unknown++;
        break;
    }
}

static int
keep_open(struct cl_pages *left, uint64_t page, uint8_t base,
          enum cl_fate fate)
{
    if (left == NULL || (fate != CL_FATE_KEPT && fate != CL_FATE_UNKNOWN)) {
        return 0;
    }
    uint8_t byte = base;
    if (fate == CL_FATE_UNKNOWN) {
        byte = (uint8_t)((base & 0xe0) | CL_PAGE_SWAPPED);
    }
    return cl_pages_put(left, page, byte);
}

int
cl_account(const struct cl_pages *base, const struct cl_pages *before,
           const struct cl_pages *witnessed, const struct cl_pages *alone,
           struct cl_pages *left, struct cl_tally by_kind[CL_NKINDS])
{
    static const struct cl_pages nothing;
    struct cl_walk walk = {
        .n = 4,
        .readings = {base, witnessed, alone, before ? before : &nothing}};
    memset(by_kind, 0, CL_NKINDS * sizeof *by_kind);
    while (cl_walk_next(&walk)) {
        const uint8_t *was = row(&walk, 0), *seen = row(&walk, 1);
        const uint8_t *now = row(&walk, 2), *then = row(&walk, 3);
        for (size_t k = 0; k < CL_GRANULE; k++) {
            if (!cl_page_is_inherited(was[k])) {
                if (is_exclusive(now[k])) {
                    by_kind[cl_page_kind(now[k])].fresh++;
                }
                if (is_exclusive(then[k])) {
                    by_kind[cl_page_kind(then[k])].fresh--;
                }
                continue;
            }
            enum cl_fate fate = cl_page_fate(was[k], seen[k], now[k]);
            count_fate(&by_kind[cl_page_kind(was[k])], fate);
            int err =
                keep_open(left, walk.number * CL_GRANULE + k, was[k], fate);
            if (err < 0) {
                return err;
            }
        }
    }
    return 0;
}
