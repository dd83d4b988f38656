/* The census of objects: see py_census.c. */
#ifndef COWLAB_PY_CENSUS_H
#define COWLAB_PY_CENSUS_H

#include "py_module.h"

extern PyMethodDef cl_census_methods[];

/* Create the type _native.ObjectSet. 0, or -1 with an exception. */
int cl_census_register(PyObject *module);

#endif
