/* A measured fork as Python objects. */
#include "py_fork.h"

static PyObject *
tally_as_tuple(const struct cl_tally *t)
{
    return Py_BuildValue("(LLLLLLL)", (long long)t->inherited,
                         (long long)t->kept, (long long)t->copied,
                         (long long)t->sole, (long long)t->fresh,
                         (long long)t->dropped, (long long)t->unknown);
}

static PyObject *
account_as_tuple(const struct cl_tally by_kind[CL_NKINDS])
{
    PyObject *tuple = PyTuple_New(CL_NKINDS);
    for (int i = 0; tuple != NULL && i < CL_NKINDS; i++) {
        PyObject *item = tally_as_tuple(&by_kind[i]);
        if (item == NULL) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *
rollup_as_dict(const struct cl_rollup *r)
{
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "rss",
        (unsigned long long)r->rss, "pss", (unsigned long long)r->pss,
        "private_clean", (unsigned long long)r->private_clean, "private_dirty",
        (unsigned long long)r->private_dirty, "private_hugetlb",
        (unsigned long long)r->private_hugetlb, "anonymous",
        (unsigned long long)r->anonymous, "swap", (unsigned long long)r->swap,
        "anon_huge_pages", (unsigned long long)r->anon_huge_pages, "ksm",
        (unsigned long long)r->ksm);
}

static const char *const failure_names[] = {
    [FAILED_BY_ENDING] = "ended",
    [FAILED_BY_TIMEOUT] = "timeout",
    [FAILED_BY_RECORDER] = "recorder",
};

static PyObject *
failure_as_dict(const struct fork_run *run, size_t index)
{
    const struct fork_child *kid = &run->kids[index];
    return Py_BuildValue(
        "{s:s,s:n,s:l,s:i,s:i,s:O,s:O,s:s,s:i}", "failure",
        failure_names[kid->failure], "child", (Py_ssize_t)index, "pid",
        (long)kid->pid, "signal", kid->ending.signal, "status",
        kid->ending.status, "is_unknown",
        kid->ending.is_unknown ? Py_True : Py_False, "line_was_lost",
        kid->control->line_was_lost ? Py_True : Py_False, "moment",
        run->moment, "recorder_errno", kid->control->recorder_errno);
}

static PyObject *
kid_as_dict(const struct fork_run *run, const struct fork_child *kid)
{
    const struct cl_moments *m = &kid->moments;
    const struct fork_control *c = kid->control;
    return Py_BuildValue(
        "{s:l,s:O,s:N,s:N,s:N,s:N,s:(KKKKKK),s:(LLLL),s:L,s:L,s:L,s:K,s:I,"
        "s:K,s:N,s:N,s:N}",
        "pid", (long)kid->pid, "payload", kid->payload, "fork_account",
        account_as_tuple(m->fork_account), "task_account",
        account_as_tuple(m->task_account), "before",
        rollup_as_dict(&m->before), "after", rollup_as_dict(&m->after),
        "faults", (unsigned long long)m->at_rest.minor,
        (unsigned long long)m->at_rest.major,
        (unsigned long long)m->at_go.minor, (unsigned long long)m->at_go.major,
        (unsigned long long)m->at_done.minor,
        (unsigned long long)m->at_done.major, "times",
        (long long)kid->fork_time, (long long)c->rest_time,
        (long long)c->go_time, (long long)c->done_time, "zero_untold",
        (long long)m->zero_untold, "reading_ns", (long long)m->reading_time,
        "shared_memory",
        (long long)m->done_alone.shared_memory -
            (long long)m->rest_alone.shared_memory,
        "page_map_reads", (unsigned long long)m->page_map_reads, "retouched",
        (unsigned int)c->touch_count, "control_bytes",
        (unsigned long long)sizeof *c, "evidence", fork_evidence(kid),
        "parent_before", rollup_as_dict(&run->parent_before), "parent_after",
        rollup_as_dict(&run->parent_after));
}

PyObject *
fork_result(const struct fork_run *run, int outcome)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < run->n; i++) {
        const struct fork_child *kid = &run->kids[i];
        PyObject *item = NULL;
        if (outcome == 0) {
            item = kid_as_dict(run, kid);
        } else if (kid->failure != NO_FAILURE) {
            item = failure_as_dict(run, i);
        } else {
            continue;
        }
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}
