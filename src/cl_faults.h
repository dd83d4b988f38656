/* The page-fault recorder: who writes first to each page that was inherited.
 *
 * Three calls around a fork: prepare before it, enable in the child once its
 * at-fork handlers are done, disable when its task is. In a process that was
 * forked long ago, all three there. The record itself (cl_record.h) is shared
 * with whoever prepared it.
 *
 * One recorder at a time can be enabled in a process: signal handlers belong
 * to the process, and so does the one global variable that they read. */
#ifndef COWLAB_CL_FAULTS_H
#define COWLAB_CL_FAULTS_H

#include "cl_record.h"

struct cl_recorder;

/* What the calling thread runs, called in a signal handler; false: nothing. */
typedef bool (*cl_frame_reader)(struct cl_code_view *view);

/* Make a recorder and its record (in a new file at `path`, or in a memfd).
 * `reader` may be NULL: no code is recorded then. 0 or -errno; release it. */
int cl_recorder_prepare(struct cl_recorder **out, enum cl_record_mode mode,
                        const char *path, cl_frame_reader reader);

/* Begin in the calling process, all its threads and those it starts later. 0,
 * -EBUSY another one is enabled, -ENOSPC see cl_record_arm, -EACCES or -EPERM
 * perf is not allowed (paranoid, seccomp), or another -errno. */
int cl_recorder_enable(struct cl_recorder *recorder);

/* Stop. The record stays. Signal handlers stay too,
 * passing on what is not ours: a fault that is still on its way to a thread
 * would end the process otherwise. Nothing if it was not enabled. 0 or
 * -errno. */
int cl_recorder_disable(struct cl_recorder *recorder);

/* Disable if need be, and let go of everything. */
void cl_recorder_release(struct cl_recorder *recorder);

struct cl_record *cl_recorder_record(struct cl_recorder *recorder);

#endif
