"""Texts of /proc as kernels write them."""
# ruff: noqa: E501, W291

from __future__ import annotations

HEADER = b"7f1200000000-7f1200400000 rw-p 00000000 00:00 0 \n"

# One mapping of an executable, Linux 6.18.
SMAPS_618 = b"""\
5580c5b52000-5580c5b53000 r--p 00000000 fe:00 26723                      /usr/bin/python3
Size:                  4 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                   4 kB
Pss:                   1 kB
Pss_Dirty:             0 kB
Shared_Clean:          4 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:         0 kB
Referenced:            4 kB
Anonymous:             0 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
THPeligible:           0
ProtectionKey:         0
VmFlags: rd mr mw me sd \n"""

# The heap of a process under memory pressure, Linux 5.10: no Pss_Dirty, no KSM.
SMAPS_510 = b"""\
561a1c2f3000-561a1c9d1000 rw-p 00000000 00:00 0                          [heap]
Size:               7032 kB
KernelPageSize:        4 kB
MMUPageSize:           4 kB
Rss:                4840 kB
Pss:                4840 kB
Shared_Clean:          0 kB
Shared_Dirty:          0 kB
Private_Clean:         0 kB
Private_Dirty:      4840 kB
Referenced:         4212 kB
Anonymous:          4840 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:               2192 kB
SwapPss:            2192 kB
Locked:                0 kB
THPeligible:    0
VmFlags: rd wr mr mw me ac sd \n"""

SMAPS = SMAPS_618 + SMAPS_510.replace(
    b"Shared_Clean:", b"Pss_Dirty:          4840 kB\nShared_Clean:"
)

ROLLUP = b"""\
5580c5b52000-7ffd2f3e1000 ---p 00000000 00:00 0                          [rollup]
Rss:               12548 kB
Pss:                8111 kB
Pss_Dirty:          6572 kB
Pss_Anon:           6528 kB
Pss_File:           1583 kB
Pss_Shmem:             0 kB
Shared_Clean:       5968 kB
Shared_Dirty:          0 kB
Private_Clean:         8 kB
Private_Dirty:      6572 kB
Referenced:        12548 kB
Anonymous:          6528 kB
KSM:                   0 kB
LazyFree:              0 kB
AnonHugePages:         0 kB
ShmemPmdMapped:        0 kB
FilePmdMapped:         0 kB
Shared_Hugetlb:        0 kB
Private_Hugetlb:       0 kB
Swap:                  0 kB
SwapPss:               0 kB
Locked:                0 kB
"""

MAPS = b"""\
5580c5b52000-5580c5b53000 r--p 00000000 fe:00 26723                      /usr/bin/python3
5580c6000000-5580c6800000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000001000 rw-p 00000000 00:00 0 
7f0000001000-7f0000101000 rw-p 00000000 00:00 0                          [anon:cpython:pymalloc]
7f0000200000-7f0000300000 rw-s 00000000 00:01 1031                       /dev/zero (deleted)
7ffd2f3c0000-7ffd2f3e1000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
"""

STAT = (
    b"4242 (python3) S 4100 4242 4100 34816 4242 4194304 1914 77 3 1 5 2 0 0 20 0 3 0"
    b" 167310 16416768 3118 18446744073709551615 1 1 0 0 0 0 0 16781312 2 0 0 0 17 1 0"
    b" 0 0 0 0 0 0 0 0 0 0 0 0\n"
)

STATUS = b"""\
Name:\tpython3
Umask:\t0022
State:\tS (sleeping)
Tgid:\t4242
Ngid:\t0
Pid:\t4242
PPid:\t4100
TracerPid:\t0
Uid:\t1000\t1000\t1000\t1000
Gid:\t1000\t1000\t1000\t1000
FDSize:\t256
Groups:\t27 1000 
NStgid:\t4242
Kthread:\t0
VmPeak:\t   16092 kB
VmSize:\t   16032 kB
VmLck:\t       0 kB
VmPin:\t       0 kB
VmHWM:\t   12648 kB
VmRSS:\t   12648 kB
RssAnon:\t    6628 kB
RssFile:\t    6020 kB
RssShmem:\t       0 kB
VmData:\t    8064 kB
VmStk:\t     132 kB
VmExe:\t       4 kB
VmLib:\t    4312 kB
VmPTE:\t      72 kB
VmSwap:\t       0 kB
HugetlbPages:\t       0 kB
CoreDumping:\t0
THP_enabled:\t1
untag_mask:\t0xffffffffffffffff
Threads:\t3
SigQ:\t0/96277
voluntary_ctxt_switches:\t12
nonvoluntary_ctxt_switches:\t3
"""
