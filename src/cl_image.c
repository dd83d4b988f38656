#include "cl_image.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "cl_pagemap.h"
#include "cl_proc.h"

#define MAX_SEGMENTS 64

static bool
is_image(const Elf64_Ehdr *header)
{
    return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64 &&
           header->e_phentsize == sizeof(Elf64_Phdr) && header->e_phnum > 0 &&
           header->e_phnum <= MAX_SEGMENTS;
}

int
cl_image_end(int mem_fd, uint64_t base, uint64_t *end)
{
    Elf64_Ehdr header;
    Elf64_Phdr segments[MAX_SEGMENTS];
    int err = cl_mem_read(mem_fd, base, &header, sizeof header);
    if (err < 0) {
        return err;
    }
    if (!is_image(&header)) {
        return -ENOEXEC;
    }
    err = cl_mem_read(mem_fd, base + header.e_phoff, segments,
                      header.e_phnum * sizeof *segments);
    if (err < 0) {
        return err;
    }
    uint64_t page_size = cl_page_size();
    uint64_t first = UINT64_MAX, last = 0;
    for (int i = 0; i < header.e_phnum; i++) {
        const Elf64_Phdr *segment = &segments[i];
        uint64_t after;
        if (segment->p_type != PT_LOAD) {
            continue;
        }
        if (__builtin_add_overflow(segment->p_vaddr, segment->p_memsz,
                                   &after)) {
            return -ENOEXEC;
        }
        first = segment->p_vaddr < first ? segment->p_vaddr : first;
        last = after > last ? after : last;
    }
    if (last == 0) {
        return -ENOEXEC;
    }
    uint64_t size = last - first / page_size * page_size;
    if (__builtin_add_overflow(base, size, end) ||
        __builtin_add_overflow(*end, page_size - 1, end)) {
        return -ENOEXEC;
    }
    *end = *end / page_size * page_size;
    return 0;
}
