/* Readings of one process: arguments in, results and exceptions out. */
#include "py_module.h"

PyMethodDef cl_readings_methods[] = {
    {NULL, NULL, 0, NULL},
};
