/* Recording without perf: inherited pages of pymalloc are made read-only, and
 * the fault on the first write to each is ours.
 *
 * Only small-object memory is guarded. A system call that writes into a
 * guarded page fails with EFAULT where it would have copied the page, which is
 * why this is asked for by name only. */
#ifndef COWLAB_CL_GUARD_H
#define COWLAB_CL_GUARD_H

#include "cl_record.h"

/* Guard every armed page that lies in a pool. 0 or -errno. */
int cl_guard_set(struct cl_record *record);

/* Make everything that was guarded writable again. */
void cl_guard_clear(struct cl_record *record);

/* Make the page at `address` writable again; false if it was never guarded.
 * Async-signal-safe. */
bool cl_guard_lift(struct cl_record *record, uint64_t address);

#endif
