/* Whose buffer is it: objects that keep their contents in a block of their
 * own, found by the pointer in them. */
#ifndef COWLAB_CL_OWNER_H
#define COWLAB_CL_OWNER_H

#include "cl_memory.h"
#include "cl_proc.h"
#include "cl_where.h"

/* Fill in `owner` and `owner_type` of those of the answers (sorted by address)
 * that lie in a buffer, by one pass over the objects of every pool. 0 or
 * -errno. */
int cl_owner_find(struct cl_memory *memory,
                  const struct cl_object_layout *layout,
                  const struct cl_buf *maps, struct cl_where *answers,
                  size_t n);

#endif
