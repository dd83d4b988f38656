/* A child's life: processes that cannot be lost, witnesses, one-byte messages.
 */
#ifndef COWLAB_CL_CHILD_H
#define COWLAB_CL_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A child of ours. The pidfd tells of its end whoever reaps it. From
 * CL_NO_PROCESS. */
struct cl_process {
    pid_t pid; /* 0: none */
    int pidfd; /* -1: none */
};

#define CL_NO_PROCESS (struct cl_process){.pid = 0, .pidfd = -1}

/* Watch a child that was just made. 0 or -errno (-ENOSYS before Linux 5.3,
 * -EPERM under some filters). The process is set in either case. */
int cl_process_watch(struct cl_process *process, pid_t pid);

void cl_process_kill(const struct cl_process *process);

/* How a process ended. */
struct cl_ending {
    int signal;      /* not 0: killed by it */
    int status;      /* else its exit status */
    bool is_unknown; /* someone else collected it, and the kernel keeps none */
};

/* Wait until it has ended, collect it, close the pidfd, leave CL_NO_PROCESS.
 */
void cl_process_reap(struct cl_process *process, struct cl_ending *ending);

/* Whether it has ended; does not wait, does not collect. */
bool cl_process_has_ended(const struct cl_process *process);

/* A question to a witness about its own memory. Only the owner of the memory
 * can look at it for nothing: process_vm_readv makes the kernel copy every
 * shared page that it reads, and a read of /proc/PID/mem is a system call a
 * page. In a mapping that is shared with the witness. */
#define CL_QUESTION_MAX 16384u

struct cl_question {
    _Atomic uint32_t state; /* 0 idle, 1 asked, 2 answered; a futex */
    uint32_t n;
    uint64_t addresses[CL_QUESTION_MAX]; /* the answer: 0 where it is no */
};

/* Clone a sleeping process with this one's memory: it waits to be killed, by
 * its parent's end at the latest, and writes no page but those of its stack.
 * With `as_sibling` its parent is ours. The kernel writes the pid to `pid_at`,
 * unless it is NULL, before the witness runs: whoever shares that memory can
 * find it even if the caller is killed. With a `question` it answers, each
 * time, which of the addresses `test` holds for. The pid or -errno. No handler
 * of pthread_atfork runs. */
long cl_witness_clone(bool as_sibling, pid_t *pid_at,
                      struct cl_question *question,
                      bool (*test)(const void *at));

/* Ask the first `question->n` addresses. 0, or -ESRCH where the witness has
 * ended (an address was not mapped). */
int cl_witness_ask(const struct cl_process *witness,
                   struct cl_question *question);

/* A pipe each way. Message bytes are in enum cl_word; a result follows
 * CL_WORD_RESULT as 8 bytes of length and that many bytes. */
struct cl_line {
    int to_child[2], to_parent[2];
    uint64_t to_child_inode, to_parent_inode;
};

enum cl_word {
    CL_WORD_REST = 'R',    /* child: at rest */
    CL_WORD_WITNESS = 'W', /* parent: make a witness; child: made */
    CL_WORD_GO = 'G',      /* parent: run the task */
    CL_WORD_DONE = 'D',    /* child: the task has ended */
    CL_WORD_REPORT = 'E',  /* parent: send the result, then leave */
};

int cl_line_open(struct cl_line *line);
void cl_line_close_parent_side(struct cl_line *line); /* in the child */
void cl_line_close_child_side(struct cl_line *line);  /* in the parent */
void cl_line_close(struct cl_line *line);

/* Whether the child's two ends are still the pipes that they were: a task may
 * have closed them, and opened something else under the same number. */
bool cl_line_is_intact(const struct cl_line *line);

/* In the child. 0, -EPIPE where the parent has gone, or -errno. */
int cl_line_tell(const struct cl_line *line, char word);
int cl_line_hear(const struct cl_line *line, char *word);
int cl_line_send(const struct cl_line *line, const void *bytes, size_t n);

/* Bind the calling process's life to its parent's: SIGKILL when the thread
 * that forked it ends. 0, or -ESRCH where `parent` has ended already. */
int cl_die_with(pid_t parent);

int64_t cl_now(void); /* CLOCK_MONOTONIC, nanoseconds */

#endif
