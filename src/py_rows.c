/* _native.Rows: memory of our own, read-only to Python. */
#include "py_rows.h"

struct rows {
    PyObject_HEAD struct cl_buf buf;
    Py_ssize_t count, size;
};

static void
rows_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    cl_buf_release(&((struct rows *)self)->buf);
    type->tp_free(self);
    Py_DECREF(type);
}

static int
rows_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    static char nothing[1];
    struct rows *rows = (struct rows *)self;
    void *data = rows->buf.data == NULL ? nothing : rows->buf.data;
    return PyBuffer_FillInfo(view, self, data, rows->count * rows->size, 1,
                             flags);
}

static Py_ssize_t
rows_length(PyObject *self)
{
    return ((struct rows *)self)->count;
}

static PyType_Slot rows_slots[] = {
    {Py_tp_dealloc, rows_dealloc},
    {Py_bf_getbuffer, rows_getbuffer},
    {Py_sq_length, rows_length},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "cowlab._native.Rows",
    .basicsize = sizeof(struct rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = rows_slots,
};

int
cl_rows_register(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &rows_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int err = PyModule_AddObjectRef(module, "Rows", type);
    Py_DECREF(type);
    return err;
}

PyObject *
cl_rows_new(PyObject *module, struct cl_buf *buf, size_t count, size_t size)
{
    struct rows *rows = NULL;
    PyObject *type = PyObject_GetAttrString(module, "Rows");
    if (type != NULL) {
        rows = PyObject_New(struct rows, (PyTypeObject *)type);
        Py_DECREF(type);
    }
    if (rows == NULL) {
        cl_buf_release(buf);
        return NULL;
    }
    rows->buf = *buf;
    rows->count = (Py_ssize_t)count;
    rows->size = (Py_ssize_t)size;
    *buf = (struct cl_buf){0};
    return (PyObject *)rows;
}
