/* See cl_evidence.h. */
#include "cl_evidence.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cl_pagemap.h"

/* The addresses that were written down, in the order of their pages. */
static int
list_addresses(struct cl_evidence *evidence, const struct cl_record *record)
{
    const char *base = (const char *)record->header;
    const struct cl_record_range *ranges =
        (const void *)(base + record->header->ranges.at);
    struct cl_slot *slots = (void *)(base + record->header->slots.at);
    uint64_t first = atomic_load(&record->header->counts[CL_COUNT_FIRST]);
    int err = cl_buf_reserve(&evidence->addresses,
                             (size_t)(first + 1) * sizeof(uint64_t));
    if (err != 0) {
        return err;
    }
    uint64_t *out = (void *)evidence->addresses.data;
    size_t n = 0;
    for (uint64_t i = 0; i < record->header->nranges; i++) {
        uint64_t pages =
            (ranges[i].end - ranges[i].start) / record->header->page_size;
        for (uint64_t j = 0; j < pages && n < first; j++) {
            struct cl_slot *slot = &slots[ranges[i].first + j];
            if (atomic_load_explicit(&slot->state, memory_order_acquire) ==
                CL_SLOT_DONE) {
                out[n++] = slot->address;
            }
        }
    }
    evidence->n = n;
    return 0;
}

int
cl_evidence_take(struct cl_evidence *evidence, const struct cl_record *record,
                 const struct cl_object_layout *layout, pid_t witness,
                 pid_t child)
{
    int err = list_addresses(evidence, record);
    size_t n = evidence->n + 1;
    if (err != 0 ||
        (err = cl_buf_reserve(&evidence->rest, n * sizeof(struct cl_where))) ||
        (err = cl_buf_reserve(&evidence->done, n * sizeof(struct cl_where))) ||
        (err = cl_buf_reserve(&evidence->before, n * sizeof(uint32_t))) ||
        (err = cl_buf_reserve(&evidence->after, n * sizeof(uint32_t)))) {
        return err;
    }
    const uint64_t *addresses = (const void *)evidence->addresses.data;
    struct cl_where *rest = (void *)evidence->rest.data;
    n = evidence->n;
    err = cl_where(witness, layout, addresses, n, rest);
    if (err == -EACCES || err == -EPERM) {
        evidence->by_parent = true;
        witness = getpid();
        err = cl_where(witness, layout, addresses, n, rest);
    }
    if (err != 0) {
        return err;
    }
    err = cl_where_pool_counts(witness, addresses, n,
                               (void *)evidence->before.data);
    if (err != 0) {
        return err;
    }
    err = cl_where(child, layout, addresses, n, (void *)evidence->done.data);
    if (err == 0) {
        err = cl_where_pool_counts(child, addresses, n,
                                   (void *)evidence->after.data);
    }
    if (err == -EACCES || err == -EPERM) {
        /* Nothing has changed, as far as can be told. */
        memcpy(evidence->done.data, rest, n * sizeof *rest);
        memcpy(evidence->after.data, evidence->before.data,
               n * sizeof(uint32_t));
        err = 0;
    }
    return err;
}

int
cl_evidence_copied(struct cl_evidence *evidence, const struct cl_moments *m)
{
    struct cl_walk walk = {
        .n = 3, .readings = {&m->open, &m->done_witnessed, &m->done_alone}};
    static const uint8_t no_pages[CL_GRANULE];
    size_t page = cl_page_size();
    while (cl_walk_next(&walk)) {
        const uint8_t *bytes[3];
        for (size_t i = 0; i < 3; i++) {
            bytes[i] = walk.granules[i] ? walk.granules[i]->pages : no_pages;
        }
        int err = cl_buf_reserve(&evidence->copied,
                                 (evidence->ncopied + CL_GRANULE) *
                                     sizeof(uint64_t));
        if (err != 0) {
            return err;
        }
        uint64_t *out = (void *)evidence->copied.data;
        for (size_t k = 0; k < CL_GRANULE; k++) {
            if (cl_page_is_inherited(bytes[0][k]) &&
                cl_page_fate(bytes[0][k], bytes[1][k], bytes[2][k]) ==
                    CL_FATE_COPIED) {
                out[evidence->ncopied++] =
                    (walk.number * CL_GRANULE + k) * page;
            }
        }
    }
    return 0;
}

void
cl_evidence_release(struct cl_evidence *evidence)
{
    cl_buf_release(&evidence->addresses);
    cl_buf_release(&evidence->rest);
    cl_buf_release(&evidence->done);
    cl_buf_release(&evidence->before);
    cl_buf_release(&evidence->after);
    cl_buf_release(&evidence->copied);
    evidence->n = evidence->ncopied = 0;
}
