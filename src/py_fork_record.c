/* The recorder's part of a measured fork. */
#include "py_fork.h"
#include "py_layout.h"
#include "py_recorder.h"
#include "py_where.h"

int
fork_hand_out(struct fork_run *run, PyObject *recorders)
{
    Py_ssize_t n = PyTuple_GET_SIZE(recorders);
    if (n > 0 && cl_layout_require("recording") < 0) {
        return -1;
    }
    for (Py_ssize_t i = 0; i < n && (size_t)i < run->n; i++) {
        struct fork_child *kid = &run->kids[i];
        kid->recorder = cl_recorder_of(PyTuple_GET_ITEM(recorders, i));
        if (kid->recorder == NULL || cl_object_layout(&kid->layout) != 0) {
            return -1;
        }
    }
    return 0;
}

int
fork_evidence_take(struct fork_child *kid)
{
    if (kid->recorder == NULL) {
        return 0;
    }
    return cl_evidence_take(&kid->evidence, cl_recorder_record(kid->recorder),
                            &kid->layout, kid->rest_witness.pid,
                            kid->process.pid);
}

int
fork_evidence_copied(struct fork_child *kid)
{
    if (kid->recorder == NULL) {
        return 0;
    }
    return cl_evidence_copied(&kid->evidence, &kid->moments);
}

PyObject *
fork_evidence(const struct fork_child *kid)
{
    if (kid->recorder == NULL) {
        Py_RETURN_NONE;
    }
    return cl_evidence_as_tuple(&kid->evidence);
}
