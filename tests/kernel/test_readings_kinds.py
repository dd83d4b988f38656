"""Memory of every kind, told apart: files, shared, named, huge, swapped, zero."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import (
    KEPT,
    MIB,
    PAGE,
    address_of,
    as_root,
    become_nobody,
    call,
    in_child,
    isolated,
    private,
    process,
    stranger,
)

from cowlab import (
    PageFlag,
    SmapsEntry,
    Unreadable,
    Unsupported,
    kpagecount,
    kpageflags,
    maps,
    page_runs,
    pagemap,
    smaps,
)


def entry_at(pid: int | None, address: int) -> SmapsEntry:
    (entry,) = (e for e in smaps(pid) if e.start <= address < e.end)
    return entry


def map_file(path: Path, size: int = PAGE, shared: bool = True) -> int:
    with path.open("r+b") as file:
        file.truncate(size)
        flags = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        memory = mmap.mmap(file.fileno(), size, flags)
    KEPT.append(memory)
    memory[0] = 1
    return address_of(memory)


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    KEPT.clear()


# ---- files and shared memory ----

NAMES = [
    b"plain",
    b"two words.so",
    b"x\rRss:   1234 kB\rPss: 9 kB",
    b"x\nRss:   1234 kB\nPss: 9 kB\n",
    b"literally\\012",
    b"not utf-8 \xff\xfe",
    b" leading and trailing ",
    b"looks (deleted)",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / os.fsdecode(name)
    path.touch()
    status = path.stat()
    address = map_file(path)
    entry = entry_at(None, address)
    assert entry.inode == status.st_ino and entry.kind in {"file", "shared memory"}
    assert entry.rss == PAGE and entry.path is not None
    written = os.fsencode(path).replace(b"\n", b"\\012")
    assert os.fsencode(entry.path) == written
    assert entry in tuple(smaps())
    path.unlink()
    assert entry_at(None, address).path == entry.path + " (deleted)"
    assert entry_at(None, address).deleted
    assert entry_at(None, address).file == entry.file


def test_a_deleted_file_and_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    path.touch()
    first = map_file(path)
    path.unlink()
    path.touch()
    second = map_file(path)
    entries = entry_at(None, first), entry_at(None, second)
    assert entries[0].file != entries[1].file
    assert [e.deleted for e in entries] == [True, False]


def test_a_written_page_of_a_private_file_mapping(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.touch()
    address = map_file(path, 4 * PAGE, shared=False)
    entry = entry_at(None, address)
    assert entry.kind == "file" and entry.anonymous == PAGE
    pages = pagemap(None, [(address, address + 4 * PAGE)])
    assert pages.bits("present", without=["file"]).tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_system_v_segments_are_different_files() -> None:
    LIBC_SHMAT = ctypes.CDLL(None, use_errno=True).shmat
    LIBC_SHMAT.restype = ctypes.c_void_p

    def setup() -> list[int]:
        addresses = []
        for _ in range(2):
            ident = call("shmget", 0, PAGE, 0o1600)
            address = LIBC_SHMAT(ident, None, 0)
            call("shmctl", ident, 0, None)
            ctypes.memset(address, 1, 1)
            addresses.append(address)
        return addresses

    with process(setup) as (pid, addresses):
        first, second = (entry_at(pid, address) for address in addresses)
    assert first.path == second.path and first.path is not None
    assert first.path.startswith("/SYSV00000000")
    assert first.file != second.file
    assert first.kind == "shared memory" and first.deleted


def test_shared_memory_without_a_file() -> None:
    memory = mmap.mmap(-1, PAGE)
    memory[0] = 1
    entry = entry_at(None, address_of(memory))
    assert entry.kind == "shared memory" and entry.shared and entry.file
    fd = os.memfd_create("a buffer")
    os.truncate(fd, PAGE)
    memory = mmap.mmap(fd, PAGE)
    os.close(fd)
    entry = entry_at(None, address_of(memory))
    assert entry.kind == "shared memory" and entry.path == "/memfd:a buffer (deleted)"


def test_named_anonymous_memory() -> None:
    address = isolated(4 * PAGE)
    try:
        call(
            "prctl", 0x53564D41, 0, ctypes.c_ulong(address), 4 * PAGE, b"my arena: 1 kB"
        )
    except OSError as error:
        pytest.skip(f"this kernel names no memory (CONFIG_ANON_VMA_NAME): {error}")
    entry = entry_at(None, address)
    assert entry.path == "[anon:my arena: 1 kB]" and entry.name == "my arena: 1 kB"
    assert entry.kind == "anonymous" and entry.file is None
    assert entry.private_dirty == 4 * PAGE


# ---- huge pages, swap ----


def huge_page_size() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Hugepagesize:"):
            return int(line.split()[1]) * 1024
    pytest.skip("this kernel has no hugetlb pages")


@contextmanager
def huge_page_pool(pages: int) -> Iterator[int]:
    """A pool with some free huge pages; their size. It is as it was afterwards."""
    size = huge_page_size()
    setting = Path(f"/sys/kernel/mm/hugepages/hugepages-{size // 1024}kB/nr_hugepages")
    before = int(setting.read_text())
    try:
        setting.write_text(str(before + pages))
        if int(setting.read_text()) < before + pages:
            pytest.skip("the kernel has no huge page to spare")
        yield size
    finally:
        setting.write_text(str(before))


@as_root("to reserve huge pages")
def test_hugetlb_pages_are_apart() -> None:
    with huge_page_pool(1) as size:

        def setup() -> int:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000  # MAP_HUGETLB
            memory = mmap.mmap(-1, size, flags)
            memory[0] = 1
            KEPT.append(memory)
            return address_of(memory)

        with process(setup) as (pid, address):
            entry = entry_at(pid, address)
            (plain,) = (m for m in maps(pid) if m.start == address)
            pages = pagemap(pid, [entry])
    assert entry.kind == plain.kind == "hugetlb"
    assert entry.private_hugetlb == size and entry.kernel_page_size == size
    assert entry.rss == entry.uss == entry.pss == 0
    assert entry.flags is not None and "ht" in entry.flags
    assert pages.count("present") == size // PAGE


def has_swap() -> bool:
    return len(Path("/proc/swaps").read_text().splitlines()) > 1


@contextmanager
def some_swap(directory: Path) -> Iterator[None]:
    """Swap space: what there is, or as root a file of our own."""
    if has_swap():
        yield
        return
    if os.geteuid() != 0:
        pytest.skip("no swap here, and root is needed to make some")
    file = directory / "swap"
    size = 16 * MIB
    with file.open("wb") as out:
        out.write(b"\0" * 1024 + struct.pack("III", 1, size // PAGE - 1, 0))
        out.write(b"\0" * (PAGE - 10 - out.tell()) + b"SWAPSPACE2")
        out.write(b"\0" * (size - out.tell()))
        os.fsync(out.fileno())
    file.chmod(0o600)
    try:
        call("swapon", os.fsencode(file), 0)
    except OSError as error:
        pytest.skip(f"no swap file can be used here: {error}")
    try:
        yield
    finally:
        call("swapoff", os.fsencode(file))


def test_swapped_memory(tmp_path: Path) -> None:
    size = 64 * PAGE

    def setup() -> int:
        address = isolated(size)
        memory = ctypes.c_void_p(address)
        call("madvise", memory, ctypes.c_size_t(size), 21)  # MADV_PAGEOUT
        return address

    with some_swap(tmp_path), process(setup) as (pid, address):
        entry = entry_at(pid, address)
        if not entry.swap:
            pytest.skip("the kernel did not swap out what it was asked to")
        assert entry.rss is not None and entry.swap + entry.rss == size
        pages = pagemap(pid, [entry])
        assert pages.count("swapped") * PAGE == entry.swap
        assert pages.count("swapped", "present") == 0
        swapped = sum(run.size for run in runs(pid, entry) if run.swapped)
        assert swapped == entry.swap


def runs(pid: int | None, *ranges: object) -> tuple[object, ...]:
    try:
        return page_runs(pid, ranges)  # type: ignore[arg-type]
    except Unsupported as error:
        pytest.skip(str(error))


# ---- pages ----


def test_the_page_map_of_known_pages() -> None:
    address = private(8 * PAGE, write=False)
    for page in (1, 2, 5):
        ctypes.memset(address + page * PAGE, 1, 1)
    pages = pagemap(None, [(address, address + 8 * PAGE)])
    expected = [page in (1, 2, 5) for page in range(8)]
    assert pages.bits("present", "exclusive", without=["file"]).tolist() == expected
    assert pages.count("present") == 3 and pages.count("swapped") == 0
    assert pages.address(5) == address + 5 * PAGE
    found = runs(None, (address, address + 8 * PAGE))
    assert [(r.start - address, r.end - address) for r in found] == [  # type: ignore[attr-defined]
        (PAGE, 3 * PAGE),
        (5 * PAGE, 6 * PAGE),
    ]


def test_zero_pages_are_present_and_no_memory() -> None:
    address = private(4 * PAGE, write=False)
    ctypes.string_at(address, 4 * PAGE)
    pages = pagemap(None, [(address, address + 4 * PAGE)])
    assert pages.count("present") == 4 and pages.count("exclusive") == 0
    assert all(run.zero for run in runs(None, (address, address + 4 * PAGE)))  # type: ignore[attr-defined]


def test_pages_that_a_fork_shares_are_not_exclusive() -> None:
    address = private(4 * PAGE)
    ranges = [(address, address + 4 * PAGE)]

    def write_one() -> None:
        ctypes.memset(address, 2, 1)

    with process(write_one) as (pid, _):
        assert pagemap(pid, ranges).bits("exclusive").tolist() == [True] + [False] * 3
        assert pagemap(None, ranges).bits("exclusive").tolist() == [True] + [False] * 3


def test_every_mapping_of_a_process_can_be_asked_for() -> None:
    with stranger() as pid:
        entries = maps(pid)  # [vsyscall] too, which no page map has
        pages = pagemap(pid, entries)
    assert len(pages) * PAGE == sum(e.size for e in entries if e.start < 1 << 63)
    assert len(pages.ranges) >= len(entries) - 1


@pytest.mark.parametrize("address", [1 << 62, (1 << 64) - 2 * PAGE])
def test_addresses_that_no_process_has(address: int) -> None:
    for reading in (pagemap, page_runs):
        try:
            with pytest.raises(ValueError, match="beyond what a process can map"):
                reading(None, [(address, address + PAGE)])
        except Unsupported as error:
            pytest.skip(str(error))


def frames_of(pid: int | None, address: int, pages: int) -> list[int] | None:
    frames = pagemap(pid, [(address, address + pages * PAGE)]).frames
    return None if frames is None else list(frames)


def test_frames_are_hidden_and_not_zero_without_the_capability() -> None:
    def read() -> list[int] | None:
        become_nobody()
        return frames_of(None, private(4 * PAGE), 4)

    assert in_child(read) is None


def test_counts_are_denied_without_the_capability() -> None:
    def read() -> None:
        become_nobody()
        kpagecount([1])

    with pytest.raises((Unreadable, Unsupported)) as caught:
        in_child(read)
    if isinstance(caught.value, Unreadable):
        assert "root" in str(caught.value)
        assert caught.value.errno == errno.EACCES


@as_root("for frame numbers")
def test_frames_counts_and_flags() -> None:
    address = private(4 * PAGE)
    frames = frames_of(None, address, 4)
    if frames is None:
        pytest.skip("root without CAP_SYS_ADMIN: frame numbers are hidden")
    assert len(set(frames)) == 4 and all(frames)
    try:
        assert list(kpagecount(frames)) == [1] * 4
        with process(lambda: None) as (pid, _):
            assert frames_of(pid, address, 4) == frames
            assert list(kpagecount(frames)) == [2] * 4
        flags = [PageFlag(word) for word in kpageflags(frames)]
    except Unsupported as error:
        pytest.skip(str(error))
    assert all(PageFlag.ANON in flag for flag in flags)
    assert list(kpagecount([0])) == [0]
    assert PageFlag(kpageflags([0])[0]) == PageFlag.NOPAGE
    with pytest.raises(ValueError, match="there is no frame"):
        kpagecount([frames[0], 2**50])


def test_no_page_has_no_frame() -> None:
    address = private(2 * PAGE, write=False)
    assert frames_of(None, address, 2) == [0, 0]


def test_runs_are_what_is_in_memory() -> None:
    with stranger() as pid:
        entries = smaps(pid)
        found = runs(pid, *entries)
    assert {"stack", "anonymous", "file"} <= {e.kind for e in entries}
    in_memory = sum(r.size for r in found if not r.zero)  # type: ignore[attr-defined]
    assert in_memory >= sum(e.rss or 0 for e in entries)
