/* stat and status: any name, any end, and nothing read past it. */
#include <errno.h>

#include "check.h"
#include "cl_stat.h"

static const char stat_text[] =
    "4242 (a) S (b\n) S 4100 4242 4100 34816 4242 4194304 1914 77 3 1 5 2 0 0"
    " 20 0 3 0 167310 16416768 3118 18446744073709551615 1 1 0 0 0\n";

static const char status_text[] = "Name:\tpython3\n"
                                  "State:\tS (sleeping)\n"
                                  "Tgid:\t4242\n"
                                  "Pid:\t4242\n"
                                  "PPid:\t4100\n"
                                  "TracerPid:\t0\n"
                                  "Uid:\t1000\t1001\t1002\t1003\n"
                                  "Gid:\t100\t100\t100\t100\n"
                                  "VmHWM:\t   12648 kB\n"
                                  "VmRSS:\t   12644 kB\n"
                                  "Threads:\t3\n";

static void
whole_texts(void)
{
    char *copy = check_copy(stat_text, sizeof stat_text - 1);
    struct cl_stat stat;
    CHECK(cl_stat_parse(copy, sizeof stat_text - 1, &stat) == 0);
    CHECK(stat.pid == 4242 && stat.ppid == 4100 && stat.state == 'S');
    CHECK(stat.comm_len == 8 && memcmp(stat.comm, "a) S (b\n", 8) == 0);
    CHECK(stat.minor_faults == 1914 && stat.major_faults == 3);
    CHECK(stat.threads == 3 && stat.rss_pages == 3118);
    free(copy);

    copy = check_copy(status_text, sizeof status_text - 1);
    struct cl_status status;
    CHECK(cl_status_parse(copy, sizeof status_text - 1, &status) == 0);
    CHECK(status.name_len == 7 && status.threads == 3);
    CHECK(status.uid[1] == 1001 && status.uid[3] == 1003);
    CHECK(status.present == (1u << CL_STATUS_VM_HWM | 1u << CL_STATUS_VM_RSS));
    CHECK(status.bytes[CL_STATUS_VM_RSS] == 12644 * 1024);
    free(copy);
}

static void
cut_anywhere(void)
{
    for (size_t len = 0; len < sizeof stat_text - 1; len++) {
        char *copy = check_copy(stat_text, len);
        struct cl_stat stat;
        int err = cl_stat_parse(copy, len, &stat);
        CHECK(err == -ENODATA || err == -EBADMSG);
        free(copy);
    }
    for (size_t len = 0; len < sizeof status_text - 1; len++) {
        char *copy = check_copy(status_text, len);
        struct cl_status status;
        CHECK(cl_status_parse(copy, len, &status) == -ENODATA);
        free(copy);
    }
}

/* Every byte changed to each of a few others: an answer, never a crash. */
static void
changed_anywhere(void)
{
    static const char others[] = "\0\n\t :()-9fz\xff";
    size_t len = sizeof status_text - 1;
    char *copy = check_copy(status_text, len);
    struct cl_status status;
    for (size_t i = 0; i < len; i++) {
        for (size_t j = 0; j < sizeof others - 1; j++) {
            copy[i] = others[j];
            cl_status_parse(copy, len, &status);
        }
        copy[i] = status_text[i];
    }
    free(copy);
    len = sizeof stat_text - 1;
    copy = check_copy(stat_text, len);
    struct cl_stat stat;
    for (size_t i = 0; i < len; i++) {
        for (size_t j = 0; j < sizeof others - 1; j++) {
            copy[i] = others[j];
            cl_stat_parse(copy, len, &stat);
        }
        copy[i] = stat_text[i];
    }
    free(copy);
}

int
main(void)
{
    whole_texts();
    cut_anywhere();
    changed_anywhere();
    return check_failures();
}
