/* What is needed to explain a recorded child's copied pages, taken while it is
 * blocked and its witness lives: what lay at each recorded address at rest and
 * what lies there now, and which pages it has copied. */
#ifndef COWLAB_CL_EVIDENCE_H
#define COWLAB_CL_EVIDENCE_H

#include "cl_moments.h"
#include "cl_object.h"
#include "cl_proc.h"
#include "cl_record.h"
#include "cl_where.h"

/* From {0}. The buffers hold `n` values each, `copied` has `ncopied`. */
struct cl_evidence {
    size_t n, ncopied;
    bool by_parent; /* the witness could not be read: rest is this process */
    struct cl_buf addresses;     /* uint64_t, ascending */
    struct cl_buf rest, done;    /* struct cl_where */
    struct cl_buf before, after; /* uint32_t, blocks in use in the pool */
    struct cl_buf copied;        /* uint64_t, addresses of pages */
};

/* Before the witness goes. 0 or -errno. */
int cl_evidence_take(struct cl_evidence *evidence,
                     const struct cl_record *record,
                     const struct cl_object_layout *layout, pid_t witness,
                     pid_t child);

/* Once the moments are complete. 0 or -ENOMEM. */
int cl_evidence_copied(struct cl_evidence *evidence,
                       const struct cl_moments *moments);

void cl_evidence_release(struct cl_evidence *evidence);

#endif
