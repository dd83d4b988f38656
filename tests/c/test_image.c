/* The end of this very program's image, against what the linker says. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "cl_image.h"
#include "cl_pagemap.h"

extern char __ehdr_start[], _end[];

static void
test_this_program(int mem)
{
    uint64_t end = 0;
    uint64_t page_size = cl_page_size();
    CHECK(cl_image_end(mem, (uintptr_t)__ehdr_start, &end) == 0);
    CHECK(end == ((uintptr_t)_end + page_size - 1) / page_size * page_size);
}

static void
test_what_is_no_image(int mem)
{
    uint64_t end;
    unsigned char *page = mmap(NULL, cl_page_size(), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t at = (uintptr_t)page;
    CHECK(cl_image_end(mem, at, &end) == -ENOEXEC);
    /* Its magic, and nothing that makes sense. */
    memset(page, 0xff, cl_page_size());
    memcpy(page, __ehdr_start, 5);
    CHECK(cl_image_end(mem, at, &end) == -ENOEXEC);
    /* A true header whose segments are zeros, then absurd. */
    memset(page, 0, cl_page_size());
    memcpy(page, __ehdr_start, 64);
    CHECK(cl_image_end(mem, at, &end) == -ENOEXEC);
    memset(page + 64, 0xff, cl_page_size() - 64);
    CHECK(cl_image_end(mem, at, &end) == -ENOEXEC);
    munmap(page, cl_page_size());
    CHECK(cl_image_end(mem, at, &end) < 0);
}

int
main(void)
{
    int mem = open("/proc/self/mem", O_RDONLY);
    CHECK(mem >= 0);
    test_this_program(mem);
    test_what_is_no_image(mem);
    close(mem);
    return check_failures();
}
