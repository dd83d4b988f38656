/* Where a program or library ends in memory. */
#ifndef COWLAB_CL_IMAGE_H
#define COWLAB_CL_IMAGE_H

#include <stdint.h>

/* The end, rounded up to a page, of the ELF image whose first page is mapped
 * at `base`, its zero-filled tail included, as the headers in its memory say.
 * `mem_fd` is an open /proc/PID/mem. 0; -ENOEXEC where there is no such image;
 * or -errno as cl_mem_read. */
int cl_image_end(int mem_fd, uint64_t base, uint64_t *end);

#endif
