/* What lies at an address of a CPython process, found by reading bytes.
 *
 * Nothing in the process is called or trusted; every read is checked. Blocks
 * come from pymalloc's pools, which are validated whole, and from the chunks
 * of glibc's malloc. A block holds an object if what would be its type is
 * one, agrees with where in the block the object begins, and fits. */
#ifndef COWLAB_CL_WHERE_H
#define COWLAB_CL_WHERE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cl_object.h"

enum cl_place {
    CL_PLACE_UNMAPPED,     /* cannot be read */
    CL_PLACE_OTHER,        /* memory that no allocator known here manages */
    CL_PLACE_IMAGE,        /* a mapped file's: static data */
    CL_PLACE_POOL_HEADER,  /* pymalloc's own */
    CL_PLACE_FREE,         /* a block of pymalloc that was not in use */
    CL_PLACE_OBJECT,       /* in a block of either allocator */
    CL_PLACE_BUFFER,       /* a block of pymalloc in use, and no object */
    CL_PLACE_CHUNK_HEADER, /* glibc malloc's own */
    CL_PLACE_CHUNK_FREE,   /* memory that glibc malloc had free */
    CL_PLACE_CHUNK,        /* a chunk of glibc malloc in use, and no object */
};

enum cl_field {
    CL_FIELD_NONE,
    CL_FIELD_REFCOUNT,
    CL_FIELD_TYPE,
    CL_FIELD_GC,        /* the GC's links */
    CL_FIELD_DICT,      /* pointer to the instance's dict or values */
    CL_FIELD_WEAKREFS,  /* head of the list of weak references */
    CL_FIELD_PREHEADER, /* another word before the object */
    CL_FIELD_PAYLOAD,
};

/* One answer. 128 bytes. */
struct cl_where {
    uint64_t address;
    uint64_t block;  /* where it begins; 0 none */
    uint64_t object; /* 0 none */
    uint64_t type;   /* of the object */
    uint64_t owner;  /* object that points into this buffer; 0 not known */
    uint32_t block_size;
    int32_t offset; /* from the object; from the block if there is none */
    uint32_t basicsize;
    uint16_t place, field; /* enum cl_place, enum cl_field */
    char type_name[32];    /* tp_name, its end if it is long */
    char owner_type[32];
};

/* What lies at each of `n` addresses, which should be sorted, in the memory of
 * `pid` as it is now (it had better stand still). Fills `out[n]`. 0 or -errno:
 * no permission, no such process. */
int cl_where(pid_t pid, const struct cl_object_layout *layout,
             const uint64_t *addresses, size_t n, struct cl_where *out);

/* How many blocks the pool around each address has in use; UINT32_MAX where
 * there is no pool. */
int cl_where_pool_counts(pid_t pid, const uint64_t *addresses, size_t n,
                         uint32_t *out);

#endif
