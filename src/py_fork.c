/* The state machine fork -> rest -> go -> done -> report -> exit. */
#include "py_module.h"

PyMethodDef cl_fork_methods[] = {
    {NULL, NULL, 0, NULL},
};
