/* Answers of cl_where as Python objects. */
#ifndef COWLAB_PY_WHERE_H
#define COWLAB_PY_WHERE_H

#include "cl_evidence.h"
#include "cl_where.h"
#include "py_module.h"

/* A list of tuples (address, place, field, object, type, block, block size,
 * offset, basicsize, type name, owner, owner's type). New, or NULL. */
PyObject *cl_where_rows(const struct cl_where *answers, size_t n);

/* A tuple (copied pages, rest rows, done rows, {address: (blocks in use
 * before, after)}, whether the parent's memory stood in for the witness's).
 * New, or NULL. */
PyObject *cl_evidence_as_tuple(const struct cl_evidence *evidence);

#endif
