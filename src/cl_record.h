/* The record: who wrote first to each inherited page, in a mapping that is
 * made before the fork and can be read from outside while it is written.
 *
 * One slot for every page of the private mappings; a slot is armed if its page
 * was inherited, and the first writer claims it. Code objects are interned:
 * what is needed to find a line later is copied on first sight, since the
 * object may be freed before anyone reads the record. Everything that a signal
 * handler calls is marked; it allocates nothing and takes no lock. */
#ifndef COWLAB_CL_RECORD_H
#define COWLAB_CL_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CL_RECORD_MAGIC 0x314345524c574f43ull /* "COWLREC1" */
#define CL_RECORD_VERSION 1u

enum cl_record_mode {
    CL_RECORD_PAGES,     /* the page map only */
    CL_RECORD_ADDRESSES, /* perf ring: address and instruction */
    CL_RECORD_LINES,     /* perf sigtrap: these, and the Python instruction */
    CL_RECORD_PROTECT,   /* mprotect and SIGSEGV: as lines */
};

enum cl_record_state { CL_RECORD_NEW, CL_RECORD_ON, CL_RECORD_OFF };

/* Loss and everything else that is counted. X(enum, Python name). */
#define CL_RECORD_COUNTERS(X)                                                 \
    X(HITS, "hits")           /* faults that were delivered to us */          \
    X(FIRST, "first")         /* of these, first writes to inherited pages */ \
    X(REPEAT, "repeat")       /* inherited pages that had a writer already */ \
    X(OUTSIDE, "outside")     /* pages that were not inherited */             \
    X(ASYNC, "late")          /* delivered late: no line, no instruction */   \
    X(KERNEL, "kernel")       /* written inside a system call */              \
    X(NO_FRAME, "no_frame")   /* no Python code was running */                \
    X(CODE_FULL, "code_full") /* no room to intern a code object */           \
    X(TEXT_FULL, "text_full") /* no room for its text */                      \
    X(LOST, "lost")           /* overwritten in the kernel's ring */          \
    X(THREADS, "threads")     /* threads recorded from the start */           \
    X(REPLACED, "replaced")   /* somebody took our signal handler away */     \
    X(NANOSECONDS, "nanoseconds") /* spent in our signal handlers */          \
    X(UNPROTECTED, "unprotected") /* given up: no more mappings allowed */

enum cl_record_counter {
#define X(name, python) CL_COUNT_##name,
    CL_RECORD_COUNTERS(X)
#undef X
        CL_COUNT_N
};

struct cl_record_range {
    uint64_t start, end; /* bytes; the pages' slots follow each other */
    uint64_t first;      /* slot of the page at start */
};

enum cl_slot_state {
    CL_SLOT_NONE,    /* not inherited */
    CL_SLOT_ARMED,   /* inherited, nobody wrote yet */
    CL_SLOT_CLAIMED, /* being written down (or its writer died doing so) */
    CL_SLOT_DONE,
};

#define CL_FAULT_ASYNC 1u  /* code and instruction are not known */
#define CL_FAULT_KERNEL 2u /* proved to be a write inside a system call */
#define CL_FAULT_GUARD 4u  /* the page was made read-only by us */

/* How the page stood at the last look at the page map. */
enum cl_slot_end {
    CL_END_UNSEEN,
    CL_END_SHARED,
    CL_END_EXCLUSIVE, /* copied here, or left alone by the other side */
    CL_END_SWAPPED,
    CL_END_GONE,
};

struct cl_slot {
    _Atomic uint32_t state; /* enum cl_slot_state */
    uint32_t flags;         /* CL_FAULT_* */
    uint32_t code;          /* index in codes + 1; 0 none */
    int32_t offset;         /* of the instruction, in code units */
    uint64_t address;       /* that was written to */
    uint64_t ip;            /* of the machine instruction */
    uint32_t thread;        /* kernel's thread id */
    uint32_t end;           /* enum cl_slot_end */
};

/* What tells one code object from another that had its address before. */
struct cl_code_key {
    uint64_t code, lines, filename, qualname; /* addresses */
    uint64_t sample;                          /* of the line table's bytes */
    uint32_t version, first_line, units, pad;
};

struct cl_text {
    uint64_t at;    /* bytes into the text section */
    uint32_t count; /* characters */
    uint32_t width; /* bytes a character: 1 (Latin-1), 2 or 4 */
};

struct cl_code {
    _Atomic uint32_t state; /* 0 free, 1 being filled, 2 ready */
    uint32_t pad;
    struct cl_code_key key;
    struct cl_text lines, filename, qualname;
};

/* A running code object, pointers into memory that may change later. */
struct cl_code_view {
    struct cl_code_key key;
    int32_t offset; /* of the instruction, in code units; -1 at the start */
    const void *lines, *filename, *qualname;
    uint32_t lines_count, filename_count, qualname_count;
    uint32_t filename_width, qualname_width;
};

struct cl_section {
    uint64_t at;       /* bytes from the start of the mapping */
    uint64_t capacity; /* bytes */
};

struct cl_record_header {
    uint64_t magic;
    uint32_t version, header_size, slot_size, code_size;
    uint64_t size; /* bytes, of all */
    uint64_t page_size;
    uint32_t mode; /* enum cl_record_mode */
    int32_t pid;   /* 0 before it is enabled */
    int32_t parent;
    _Atomic uint32_t state; /* enum cl_record_state */
    uint32_t kernel_seen;   /* faults inside system calls are delivered */
    uint32_t pad;
    uint64_t nranges, nslots, inherited;
    _Atomic uint64_t text_used;
    uint64_t maps_start_len, maps_stop_len;
    struct cl_section ranges, slots, codes, text;
    struct cl_section maps_start, maps_stop; /* /proc/PID/maps at each end */
    _Atomic uint64_t counts[CL_COUNT_N];
};

/* A mapped record. */
struct cl_record {
    struct cl_record_header *header;
    int fd; /* of the memfd or file; close-on-exec */
};

/* Make a record with room for this process's private mappings and as much
 * again. In a file made at `path` (it must not exist), or in a memfd where
 * `path` is NULL. 0 or -errno. */
int cl_record_create(struct cl_record *record, enum cl_record_mode mode,
                     const char *path);

/* Unmap and close; leaves {0}, fd -1. */
void cl_record_release(struct cl_record *record);

/* In the process that will be recorded: find what is inherited (present,
 * private, mapped elsewhere too) and arm its slots. -ENOSPC: the mappings grew
 * beyond the room made for them. */
int cl_record_arm(struct cl_record *record);

/* Note in every armed slot how its page stands now, by PID's page map. 0 or
 * -errno. */
int cl_record_look(struct cl_record *record, pid_t pid);

/* Keep /proc/self/maps in `section`. 0, or -errno. */
int cl_record_keep_maps(struct cl_record *record, struct cl_section *section,
                        uint64_t *len);

/* From here on: async-signal-safe. */

/* The slot of the page at `address`, or NULL. */
struct cl_slot *cl_record_slot(const struct cl_record *record,
                               uint64_t address);

/* Claim the slot of `address` for its first writer; NULL if there is none to
 * claim. Fill it, then cl_record_done(). */
struct cl_slot *cl_record_claim(struct cl_record *record, uint64_t address);
void cl_record_done(struct cl_slot *slot);

/* The id of a code object, interned on first sight: index + 1, or 0 where
 * there was no room. */
uint32_t cl_record_intern(struct cl_record *record,
                          const struct cl_code_view *view);

static inline void
cl_record_count(struct cl_record *record, enum cl_record_counter which,
                uint64_t by)
{
    atomic_fetch_add_explicit(&record->header->counts[which], by,
                              memory_order_relaxed);
}

#endif
