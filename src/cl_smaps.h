/* /proc/PID/smaps and smaps_rollup, parsed. No I/O here.
 *
 * A field that the text does not have is absent, never 0: test `present`. */
#ifndef COWLAB_CL_SMAPS_H
#define COWLAB_CL_SMAPS_H

#include <stddef.h>
#include <stdint.h>

#include "cl_maps.h"

/* Every "Name: N kB" field of smaps, in the kernel's order, which
 * cowlab/_smaps.py has too. X(enum, kernel name, Python name). */
#define CL_SMAPS_FIELDS(X)                                                    \
    X(SIZE, "Size", "virtual_size")                                           \
    X(KERNEL_PAGE_SIZE, "KernelPageSize", "kernel_page_size")                 \
    X(MMU_PAGE_SIZE, "MMUPageSize", "mmu_page_size")                          \
    X(RSS, "Rss", "rss")                                                      \
    X(PSS, "Pss", "pss")                                                      \
    X(PSS_DIRTY, "Pss_Dirty", "pss_dirty")                                    \
    X(PSS_ANON, "Pss_Anon", "pss_anon")                                       \
    X(PSS_FILE, "Pss_File", "pss_file")                                       \
    X(PSS_SHMEM, "Pss_Shmem", "pss_shmem")                                    \
    X(SHARED_CLEAN, "Shared_Clean", "shared_clean")                           \
    X(SHARED_DIRTY, "Shared_Dirty", "shared_dirty")                           \
    X(PRIVATE_CLEAN, "Private_Clean", "private_clean")                        \
    X(PRIVATE_DIRTY, "Private_Dirty", "private_dirty")                        \
    X(REFERENCED, "Referenced", "referenced")                                 \
    X(ANONYMOUS, "Anonymous", "anonymous")                                    \
    X(KSM, "KSM", "ksm")                                                      \
    X(LAZY_FREE, "LazyFree", "lazy_free")                                     \
    X(ANON_HUGE_PAGES, "AnonHugePages", "anon_huge_pages")                    \
    X(SHMEM_PMD_MAPPED, "ShmemPmdMapped", "shmem_pmd_mapped")                 \
    X(FILE_PMD_MAPPED, "FilePmdMapped", "file_pmd_mapped")                    \
    X(SHARED_HUGETLB, "Shared_Hugetlb", "shared_hugetlb")                     \
    X(PRIVATE_HUGETLB, "Private_Hugetlb", "private_hugetlb")                  \
    X(SWAP, "Swap", "swap")                                                   \
    X(SWAP_PSS, "SwapPss", "swap_pss")                                        \
    X(LOCKED, "Locked", "locked")

enum cl_smaps_field {
#define X(name, kernel, python) CL_SMAPS_##name,
    CL_SMAPS_FIELDS(X)
#undef X
        CL_SMAPS_NFIELDS
};

struct cl_smaps {
    struct cl_map map;
    uint64_t present;                 /* bit i: field i was there */
    uint64_t bytes[CL_SMAPS_NFIELDS]; /* bytes; the kernel's kB are 1024 */
    int64_t thp_eligible;             /* -1: absent */
    int64_t protection_key;           /* -1: absent */
    const char *flags;                /* VmFlags, a slice; NULL: absent */
    size_t flags_len;
};

/* The next record of smaps, or the only one of smaps_rollup. Unknown fields
 * are skipped. 1 a record, 0 the end, -EBADMSG not smaps, -ENODATA ends inside
 * a record, -ERANGE a value beyond 64 bits of bytes. On an error the cursor
 * stays at the line that was wrong.
 *
 * A record is cut short where the text ends and the fields so far are the
 * first ones of those that every kernel writes, in its order, but not all of
 * them. A record that never had that shape just lacks fields. */
int cl_smaps_next(const char **cursor, const char *end, struct cl_smaps *out);

#endif
