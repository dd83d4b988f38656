/* smaps and maps: the text may end anywhere, and nothing is read past it. */
#include <errno.h>

#include "check.h"
#include "cl_smaps.h"

static const char text[] =
    "55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0                  [heap]\n"
    "Size:                132 kB\n"
    "KernelPageSize:        4 kB\n"
    "MMUPageSize:           4 kB\n"
    "Rss:                  40 kB\n"
    "Pss:                  40 kB\n"
    "Pss_Dirty:            40 kB\n"
    "Shared_Clean:          0 kB\n"
    "Shared_Dirty:          0 kB\n"
    "Private_Clean:         0 kB\n"
    "Private_Dirty:        40 kB\n"
    "Referenced:           40 kB\n"
    "Anonymous:            40 kB\n"
    "THPeligible:           0\n"
    "VmFlags: rd wr mr mw me ac sd\n"
    "7f0000000000-7f0000001000 r--p 00001000 fe:01 123456     /opt/a b.so\n"
    "Size:                  4 kB\n"
    "KernelPageSize:        4 kB\n"
    "MMUPageSize:           4 kB\n"
    "Rss:                   4 kB\n"
    "Pss:                   1 kB\n"
    "Shared_Clean:          4 kB\n"
    "Shared_Dirty:          0 kB\n"
    "Private_Clean:         0 kB\n"
    "Private_Dirty:         0 kB\n"
    "Referenced:            4 kB\n"
    "Anonymous:             0 kB\n"
    "LazyFree:              0 kB\n"
    "AnonHugePages:         0 kB\n"
    "ShmemPmdMapped:        0 kB\n"
    "FilePmdMapped:         0 kB\n"
    "Shared_Hugetlb:        0 kB\n"
    "Private_Hugetlb:       0 kB\n"
    "Swap:                  0 kB\n"
    "SwapPss:               0 kB\n"
    "Locked:                0 kB\n"
    "VmFlags:\n";

static void
two_records(void)
{
    size_t len = sizeof text - 1;
    char *copy = check_copy(text, len);
    const char *cursor = copy;
    struct cl_smaps record;

    CHECK(cl_smaps_next(&cursor, copy + len, &record) == 1);
    CHECK(cl_map_is(&record.map, "[heap]"));
    CHECK(record.present & 1ull << CL_SMAPS_PRIVATE_DIRTY);
    CHECK(record.bytes[CL_SMAPS_PRIVATE_DIRTY] == 40 * 1024);
    CHECK(!(record.present & 1ull << CL_SMAPS_SWAP));
    CHECK(record.thp_eligible == 0);

    CHECK(cl_smaps_next(&cursor, copy + len, &record) == 1);
    CHECK(cl_map_has_file(&record.map));
    CHECK(record.map.path_len == strlen("/opt/a b.so"));
    CHECK(record.flags != NULL && record.flags_len == 0);

    CHECK(cl_smaps_next(&cursor, copy + len, &record) == 0);
    free(copy);
}

/* However short the text is cut: records, then one answer, never a crash. */
static void
cut_anywhere(void)
{
    for (size_t len = 0; len < sizeof text; len++) {
        char *copy = check_copy(text, len);
        const char *cursor = copy;
        struct cl_smaps record;
        int records = 0;
        int answer;
        while ((answer = cl_smaps_next(&cursor, copy + len, &record)) == 1) {
            records++;
        }
        CHECK(records <= 2);
        CHECK(answer == 0 || answer == -ENODATA || answer == -EBADMSG);
        CHECK(cursor >= copy && cursor <= copy + len);
        free(copy);
    }
}

/* Every byte changed to each of a few others: an answer, never a crash. */
static void
changed_anywhere(void)
{
    static const char others[] = "\0\n :-9fz\xff";
    size_t len = sizeof text - 1;
    char *copy = check_copy(text, len);
    for (size_t i = 0; i < len; i++) {
        for (size_t j = 0; j < sizeof others - 1; j++) {
            copy[i] = others[j];
            const char *cursor = copy;
            struct cl_smaps record;
            while (cl_smaps_next(&cursor, copy + len, &record) == 1) {
                CHECK(cursor > copy && cursor <= copy + len);
            }
        }
        copy[i] = text[i];
    }
    free(copy);
}

int
main(void)
{
    two_records();
    cut_anywhere();
    changed_anywhere();
    return check_failures();
}
