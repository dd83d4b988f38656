"""However a child ends, the parent learns how, and nothing is left behind."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time

import pytest

import cowlab


def own_children() -> set[int]:
    pids = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/children") as file:
                pids.update(map(int, file.read().split()))
        except FileNotFoundError:
            pytest.skip("this kernel lists no children (CONFIG_PROC_CHILDREN)")
    return pids


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def nothing_is_left():
    children, descriptors = own_children(), open_descriptors()
    yield
    # Less is well: the collector ends and closes what other tests left.
    assert not own_children() - children
    assert not open_descriptors() - descriptors


def test_task_that_raises():
    def fail() -> None:
        raise LookupError("no such thing")

    with pytest.raises(cowlab.TaskError, match="LookupError: no such thing") as info:
        cowlab.measure(fail)
    assert isinstance(info.value.__cause__, LookupError)
    assert "in fail" in info.value.traceback
    assert info.value.child == 0


def test_exception_that_does_not_survive_pickling():
    class Local(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one)

    def fail() -> None:
        raise Local(1, 2)

    with pytest.raises(cowlab.TaskError, match="Local: 1") as info:
        cowlab.measure(fail)
    assert info.value.__cause__ is None
    assert "in fail" in info.value.traceback


def test_exception_whose_str_fails():
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def fail() -> None:
        raise Rude

    with pytest.raises(cowlab.TaskError, match="Rude"):
        cowlab.measure(fail)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_killed(number):
    def die() -> None:
        faulthandler.disable()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(60)

    with pytest.raises(cowlab.ChildKilled, match=number.name) as info:
        cowlab.measure(die, timeout=30)
    assert info.value.signal == number


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda: os._exit(7), 7),
        (lambda: os._exit(0), 0),
        (lambda: sys.exit(3), 3),
        (sys.exit, 0),
        (lambda: sys.exit("a message"), 1),
    ],
)
def test_exited(leave, code):
    with pytest.raises(cowlab.ChildExited) as info:
        cowlab.measure(leave)
    assert info.value.code == code


def test_program_replaced():
    with pytest.raises(cowlab.ChildExited) as info:
        cowlab.measure(os.execv, "/bin/true", ["true"], timeout=30)
    assert info.value.code == 0


def test_timeout():
    with pytest.raises(cowlab.ChildTimeout, match=r"0\.2 s") as info:
        cowlab.measure(time.sleep, 60, timeout=0.2)
    assert info.value.seconds == 0.2


def test_timeout_of_one_child_ends_the_others():
    with pytest.raises(cowlab.ChildTimeout):
        cowlab.measure(time.sleep, 60, timeout=0.3, children=4)


def test_task_that_stops_itself_times_out():
    with pytest.raises(cowlab.ChildTimeout):
        cowlab.measure(lambda: os.kill(os.getpid(), signal.SIGSTOP), timeout=0.5)


def test_result_that_does_not_pickle():
    with pytest.raises(cowlab.ResultError, match="function"):
        cowlab.measure(lambda: lambda: None)


def test_result_that_does_not_unpickle():
    class Odd:
        def __reduce__(self):
            return (int, ("no number",))

    with pytest.raises(cowlab.ResultError, match="unpickled"):
        cowlab.measure(Odd)


def test_huge_result():
    size = 64 << 20
    report = cowlab.measure(lambda: bytes(size), timeout=60)
    assert len(report.value) == size


def test_task_that_forks_and_comes_back_twice():
    def fork() -> str:
        return "copy" if os.fork() == 0 else "child"

    assert cowlab.measure(fork, timeout=30).value == "child"


def test_task_that_leaves_a_running_grandchild():
    read, write = os.pipe()

    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                os.read(read, 1)
            os._exit(0)
        return pid

    try:
        assert cowlab.measure(fork, timeout=30).value > 0
    finally:
        os.write(write, b"x")
        os.close(read)
        os.close(write)


def test_task_dies_and_leaves_a_grandchild_with_all_descriptors():
    read, write = os.pipe()

    def fork_and_die() -> None:
        if os.fork() == 0:
            os.read(read, 1)
            os._exit(0)
        os._exit(5)

    try:
        with pytest.raises(cowlab.ChildExited) as info:
            cowlab.measure(fork_and_die, timeout=30)
        assert info.value.code == 5
    finally:
        os.write(write, b"x")
        os.close(read)
        os.close(write)


def test_nested_measure():
    inner = cowlab.measure(lambda: cowlab.measure(lambda: 42).value, timeout=60)
    assert inner.value == 42


def test_task_that_closes_every_descriptor():
    with pytest.raises(cowlab.ChildExited, match="closed file descriptors"):
        cowlab.measure(os.closerange, 3, 4096, timeout=30)


def test_task_that_closes_and_reopens_descriptors_gets_no_stray_bytes(tmp_path):
    path = tmp_path / "file"

    def take_over() -> None:
        os.closerange(3, 4096)
        for _ in range(64):
            os.open(path, os.O_WRONLY | os.O_CREAT)

    with pytest.raises(cowlab.ChildExited):
        cowlab.measure(take_over, timeout=30)
    assert path.read_bytes() == b""


def test_ignored_sigchld_changes_nothing():
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert cowlab.measure(lambda: 1, timeout=30).value == 1
        with pytest.raises(cowlab.ChildError):
            cowlab.measure(os._exit, 4, timeout=30)
    finally:
        signal.signal(signal.SIGCHLD, previous)


def test_signal_handler_that_raises_leaves_cleanly():
    class Alarm(Exception):
        pass

    def ring(*_: object) -> None:
        raise Alarm

    def ring_and_sleep() -> None:
        os.kill(os.getppid(), signal.SIGALRM)
        time.sleep(60)

    previous = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):
            cowlab.measure(ring_and_sleep)
    finally:
        signal.signal(signal.SIGALRM, previous)


SLOW_POLL = r"""
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int poll(struct pollfd *fds, nfds_t n, int timeout)
{
    int ready = 0, left = timeout;
    do {
        struct timespec none = {0}, slow = {0, 20000000};
        for (nfds_t i = 0; i < n && ready == 0; i++) {
            if (i > 0) {
                nanosleep(&slow, NULL);
                left -= 20;
            }
            fds[i].revents = 0;
            ready = syscall(SYS_ppoll, &fds[i], 1, &none, NULL, 8);
        }
        nanosleep(&none, NULL);
    } while (ready == 0 && timeout != 0 && (timeout < 0 || left > 0));
    return ready;
}
"""


def test_a_child_that_ends_right_after_its_result_has_one(tmp_path):
    """poll() may find it ended that has not seen its result: it looks at one after the
    other, here with time for the rest of a life in between."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    source, library = tmp_path / "slow.c", tmp_path / "slow.so"
    source.write_text(SLOW_POLL)
    command = [compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{compiler} cannot make a library with a poll() of its own")
    done = run_script(
        """
        import cowlab
        print([cowlab.measure(lambda: 5).value for _ in range(5)])
        """,
        env={**os.environ, "LD_PRELOAD": str(library)},
    )
    assert done.stdout == "[5, 5, 5, 5, 5]\n", done.stderr


def test_from_a_thread():
    values: list[int] = []

    def work() -> None:
        values.append(cowlab.measure(lambda: 5, timeout=30).value)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert values == [5]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"task": 3}, TypeError, "callable"),
        ({"children": 0}, ValueError, "1 to 1024"),
        ({"children": True}, TypeError, "bool"),
        ({"children": 2.0}, TypeError, "float"),
        ({"timeout": 0}, ValueError, "more than 0"),
        ({"timeout": float("nan")}, ValueError, "nan"),
        ({"timeout": "1"}, TypeError, "str"),
        ({"setup": 1}, TypeError, "setup"),
        ({"childern": 2}, TypeError, "childern"),
    ],
)
def test_bad_arguments(arguments, error, text):
    task = arguments.pop("task", int)
    with pytest.raises(error, match=text):
        cowlab.measure(task, **arguments)


# --- in a process of their own -------------------------------------------------


def run_script(text: str, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **kwargs,
    )


def test_greedy_sigchld_handler_changes_nothing():
    done = run_script(
        """
        import os, signal, cowlab
        def reap_all(*_):
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
        signal.signal(signal.SIGCHLD, reap_all)
        for _ in range(20):
            assert cowlab.measure(lambda: 1, timeout=30).value == 1
        try:
            cowlab.measure(os._exit, 4, timeout=30)
        except cowlab.ChildError as error:
            print(type(error).__name__)
        """
    )
    assert done.stdout.startswith("Child"), done


@pytest.mark.parametrize(
    "children", [128, pytest.param(1024, marks=pytest.mark.any_python)]
)
def test_many_children_leave_nothing(children):
    done = run_script(
        f"""
        import os, cowlab
        def count():
            with open("/proc/self/task/%d/children" % os.getpid()) as file:
                return len(file.read().split()), len(os.listdir("/proc/self/fd"))
        before = count()
        made = 0
        for i in range({children} // 16):
            task = [
                lambda: 5,
                lambda: int("x"),
                lambda: os._exit(3),
                lambda: os.kill(os.getpid(), 9),
            ][i % 4]
            try:
                cowlab.measure(task, children=16, timeout=60)
            except cowlab.ChildError as error:
                assert i % 4, error
            made += 16
        print(made, count() == before)
        """
    )
    assert done.stdout == f"{children} True\n", done.stderr


def test_output_appears_once_and_in_order():
    done = run_script(
        """
        import cowlab
        print("before", end=" ")
        cowlab.measure(lambda: print("task", end=" "))
        print("after")
        """
    )
    assert done.stdout == "before task after\n", done.stderr


def test_exit_handlers_of_the_parent_run_once():
    done = run_script(
        """
        import atexit, cowlab
        atexit.register(print, "bye")
        cowlab.measure(lambda: None)
        """
    )
    assert done.stdout == "bye\n", done.stderr


def test_killing_the_parent_leaves_no_orphan(tmp_path):
    pids = tmp_path / "pids"
    script = textwrap.dedent(
        f"""
        import cowlab, os, time
        def task():
            with open({str(pids)!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            time.sleep(60)
        cowlab.measure(task, children=2)
        """
    )
    parent = subprocess.Popen([sys.executable, "-P", "-c", script])
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if pids.exists() and len(pids.read_text().split()) == 2:
            break
        time.sleep(0.02)
    children = [int(pid) for pid in pids.read_text().split()]
    assert len(children) == 2
    with open(f"/proc/{parent.pid}/task/{parent.pid}/children") as file:
        family = set(map(int, file.read().split()))
    assert family > set(children), "the witnesses are children too"
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(map(is_running, family)):
        time.sleep(0.02)
    assert not any(map(is_running, family))


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ctrl_c_ends_it_without_a_trace():
    script = textwrap.dedent(
        """
        import cowlab, os, time
        def task():
            os.write(1, b"running\\n")
            time.sleep(60)
        try:
            cowlab.measure(task, children=2)
        except KeyboardInterrupt:
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                print("left:", file.read())
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-P", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "running\n"
    assert parent.stdout.readline() == "running\n"
    os.killpg(parent.pid, signal.SIGINT)
    out, _ = parent.communicate(timeout=60)
    assert out == "left: \n"
    assert parent.returncode == 0


def test_child_that_fills_a_pipe_nobody_reads():
    done = run_script(
        """
        import cowlab, os
        read, write = os.pipe()
        os.dup2(write, 1)
        try:
            cowlab.measure(lambda: print("x" * 1_000_000), timeout=1)
        except cowlab.ChildTimeout as error:
            os.write(2, b"timed out")
        os._exit(0)
        """
    )
    assert "timed out" in done.stderr


def test_in_a_subinterpreter_it_says_so():
    done = run_script(
        """
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import cowlab
        one = interpreters.create()
        failed = interpreters.run_string(one, '''
        import cowlab
        try:
            cowlab.measure(int)
        except Exception as error:
            import os
            os.write(1, f"{type(error).__name__}: {error}".encode())
        '''.replace("\\n        ", "\\n"))
        """
    )
    if "No module named" in done.stderr:
        pytest.skip(f"no subinterpreters here: {done.stderr.splitlines()[-1]}")
    assert "subinterpreter" in done.stdout or "interpreter" in done.stdout, done


def test_too_few_descriptors_is_an_error_and_leaves_nothing():
    done = run_script(
        """
        import os, resource, cowlab
        def count():
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                return len(file.read().split()), len(os.listdir("/proc/self/fd"))
        cowlab.measure(int)
        before = count()
        resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
        try:
            cowlab.measure(int, children=20)
        except OSError as error:
            print(error.strerror, count() == before)
        """
    )
    assert done.stdout == "Too many open files True\n", done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")
def test_a_process_that_changed_its_user_says_so():
    done = run_script(
        """
        import os, cowlab
        cowlab.measure(int)
        os.setgid(65534)
        os.setuid(65534)
        try:
            cowlab.measure(int)
        except cowlab.Unsupported as error:
            print(error)
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            print(len(file.read().split()))
        """
    )
    assert "not dumpable" in done.stdout, done
    assert done.stdout.endswith("\n0\n")


def test_at_fork_handler_that_fails_is_no_failure_of_the_task():
    done = run_script(
        """
        import os, cowlab
        os.register_at_fork(after_in_child=lambda: 1 / 0)
        print(cowlab.measure(lambda: 7).value)
        """
    )
    assert done.stdout == "7\n", done.stderr
    assert "ZeroDivisionError" in done.stderr
