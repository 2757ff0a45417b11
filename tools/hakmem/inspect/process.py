"""The memory of a living process, through /proc/PID/mem and process_vm_readv. It is only read, and
never stopped. Whoever may trace a process may read it: the same user, or root."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hakmem.inspect.backing import BackingFiles
from hakmem.inspect.errors import (
    DamagedError,
    GoneError,
    InspectError,
    KernelError,
    UnreadableError,
)
from hakmem.inspect.memory import GATHER_BYTES_MAX, Addresses, Area, Bytes, Mask, MemorySource
from hakmem.inspect.model import Origin
from hakmem.watch import running_thread, why_unseen

PROC = Path("/proc")
# UIO_MAXIOV: parts of one process_vm_readv.
PARTS_MAX = 1024
MACHINE_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# /proc/PID/mem takes signed offsets.
ADDRESS_MAX = (1 << 63) - 1
AREA_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ([0-9a-f:]+) (\d+) *(.*)")
IOVEC = np.dtype([("base", "=u8"), ("bytes", "=u8")])
# linux/fs.h, since 6.7: PAGEMAP_SCAN on a pagemap, struct pm_scan_arg and struct page_region.
PAGEMAP_SCAN = 0xC0606610
PAGE_IS_PFNZERO = 1 << 5
SCAN_ARGUMENT = np.dtype(
    [(name, "=u8") for name in (
        "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
        "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
    )]
)  # fmt: skip
PAGE_REGION = np.dtype([("start", "=u8"), ("end", "=u8"), ("categories", "=u8")])
REGIONS_PER_SCAN = 4096
# Of an entry of pagemap: bit 62, and bit 63 for present pages, above all others.
SWAPPED = 62


def parse_areas(text: str) -> tuple[Area, ...]:
    """From the text of /proc/PID/maps or smaps; the latter has resident bytes as well."""
    areas: list[Area] = []
    # A name may hold whatever else ends a line; of a line feed the kernel writes the number.
    for line in text.split("\n"):
        found = AREA_LINE.match(line)
        if found is not None:
            start, end, flags, offset, device, inode, name = found.groups()
            areas.append(
                Area(
                    start=int(start, 16),
                    end=int(end, 16),
                    readable=flags[0] == "r",
                    writable=flags[1] == "w",
                    executable=flags[2] == "x",
                    private=flags[3] == "p",
                    name=name,
                    offset=int(offset, 16),
                    file=(device, int(inode)),
                )
            )
        elif line.startswith("Rss:") and areas:
            words = line.split()
            if len(words) == 3 and words[1].isdecimal():
                last = areas[-1]
                areas[-1] = Area(**{**vars(last), "rss_bytes": int(words[1]) * 1024})
    return tuple(areas)


def _who_may() -> str:
    """Whom it would be permitted to, for one who is refused."""
    if os.geteuid() != 0:
        return "as the same user or as root it is,"
    return (
        "as root it is with the capability CAP_SYS_PTRACE, which a container may lack or which "
        "counts in this user namespace alone,"
    )


class ProcessSource(MemorySource):
    """`thread` is the main one, or another when that has ended: in its folder, `place`, /proc tells
    of the memory that all threads of the process share."""

    origin = Origin.PROCESS
    changes = True

    def __init__(self, pid: int) -> None:
        self.pid = self.thread = pid
        if not self.place.is_dir():
            raise InspectError(why_unseen(pid))
        self.name = self._text("comm").strip()
        if not self._is_there():
            raise GoneError(f"process {pid} ({self.name}) has ended")
        self._pagemap: int | None = None
        self._writable: int | None = None
        self._backing = BackingFiles()
        self._memory = self._open("mem", os.O_RDONLY)
        try:
            self.exe = os.fsencode((self.place / "exe").readlink()).decode(errors="replace")
        except OSError:
            self.exe = ""
        self.inner_pid = next(reversed(self._numbers(self.place, "NStgid")), None)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._vm_readv_works = hasattr(self._libc, "process_vm_readv")

    @property
    def place(self) -> Path:
        return PROC / str(self.thread)

    def _is_there(self) -> bool:
        """Whether any thread has not ended; `thread` is one of those then."""
        thread = running_thread(self.pid)
        self.thread = self.thread if thread is None else thread
        return thread is not None

    def _has_moved(self) -> bool:
        """Whether another thread's folder has to be looked into than before."""
        before = self.thread
        return self._is_there() and self.thread != before

    def _open(self, name: str, flags: int) -> int:
        while True:
            try:
                return os.open(self.place / name, flags | os.O_CLOEXEC)
            except OSError as error:
                if not self._has_moved():
                    raise self._refusal(error) from None

    def _refusal(self, error: OSError) -> InspectError:
        if error.errno in (errno.EACCES, errno.EPERM):
            owner = self.owner()
            whose = f", which runs as user {owner}," if owner not in (None, os.geteuid()) else ""
            return InspectError(
                f"reading process {self.pid} ({self.name}){whose} is not permitted; {_who_may()} "
                "unless the system forbids tracing (/proc/sys/kernel/yama/ptrace_scope)"
            )
        if error.errno in (errno.ENOENT, errno.ESRCH):
            return self._gone_or_kernel()
        return InspectError(f"process {self.pid}: {error.strerror}")

    def owner(self) -> int | None:
        """The user it runs as; None when it has ended."""
        try:
            return self.place.stat().st_uid
        except OSError:
            return None

    def error_output(self) -> tuple[str, os.stat_result] | None:
        """Name and status of the file that is its standard error now; None: it is closed."""
        place = self.place / "fd" / "2"
        try:
            return str(place.readlink()), place.stat()
        except OSError:
            return None

    def _text(self, name: str) -> str:
        while True:
            try:
                text = (self.place / name).read_bytes().decode("utf-8", errors="replace")
                if text or not self._has_moved():
                    return text
            except OSError as error:
                if not self._has_moved():
                    raise self._refusal(error) from None

    def areas(self) -> tuple[Area, ...]:
        areas = parse_areas(self._text("maps"))
        if not areas:
            raise self._gone_or_kernel()
        return areas

    def resident_areas(self) -> tuple[Area, ...]:
        """As areas(), with resident bytes; slower, because the kernel counts pages."""
        areas = parse_areas(self._text("smaps"))
        if not areas:
            raise self._gone_or_kernel()
        return areas

    def _gone_or_kernel(self) -> InspectError:
        if self.exe or not self.place.is_dir():
            return GoneError(f"process {self.pid} ({self.name}) has ended")
        return KernelError(
            f"process {self.pid} ({self.name}) has no memory of its own: it is the "
            "kernel's, or ended"
        )

    def is_alive(self) -> bool:
        try:
            return bool(self._text("maps"))
        except InspectError:
            return False

    def read(self, address: int, count: int) -> bytes:
        parts: list[bytes] = []
        done = 0
        while done < count:
            at = address + done
            part = b""
            try:
                if 0 <= at <= ADDRESS_MAX:
                    part = os.pread(self._memory, count - done, at)
                    self._require_memory(len(part))
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EFAULT):
                    raise self._refusal(error) from None
            if not part:
                if not self.is_alive():
                    raise self._gone_or_kernel()
                raise UnreadableError(
                    f"process {self.pid} has no memory at {at:#x}, where its heap's metadata leads"
                )
            parts.append(part)
            done += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_in(self, area: Area, address: int, count: int) -> bytes:
        end = address + count
        if not area.is_file or not area.private or not area.start <= address < end <= area.end:
            return self.read(address, count)
        try:
            pages = list(self._touched(address, end))
        except InspectError:
            # A kernel without a pagemap; of a process that has ended read() tells.
            return self.read(address, count)
        parts: list[bytes] = []
        for start, stop, is_touched in pages:
            offset = area.offset + start - area.start
            part = None
            if not is_touched:
                part = self._backing.read(self.place, area, offset, stop - start)
            parts.append(self.read(start, stop - start) if part is None else part)
        return b"".join(parts)

    def _touched(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """A range of addresses in parts: whether the process has, or had, the pages of each."""
        first = start // MACHINE_PAGE_BYTES * MACHINE_PAGE_BYTES
        entries = self.resident_pages(first, -(-end // MACHINE_PAGE_BYTES) * MACHINE_PAGE_BYTES)
        touched = (entries >> np.uint64(SWAPPED)) != 0
        edges = np.flatnonzero(touched[1:] != touched[:-1]) + 1
        for page, next_page in itertools.pairwise([0, *edges.tolist(), len(touched)]):
            low, high = (first + each * MACHINE_PAGE_BYTES for each in (page, next_page))
            yield max(low, start), min(high, end), bool(touched[page])

    def _require_memory(self, count: int) -> None:
        """Nothing was read or written, and without an error: the memory that was opened is gone."""
        if count:
            return
        if self.is_alive():
            raise GoneError(f"process {self.pid} ({self.name}) runs another program since (exec)")
        raise self._gone_or_kernel()

    def write(self, address: int, data: bytes) -> None:
        """All of it, with one call; InspectError when that is not permitted."""
        if self._writable is None:
            self._writable = self._open_writable(address)
        try:
            written = os.pwrite(self._writable, data, address)
        except OSError as error:
            raise self._refusal(error) from None
        self._require_memory(written)
        if written != len(data):
            raise UnreadableError(f"process {self.pid} has no memory at {address:#x} to write to")

    def _open_writable(self, address: int) -> int:
        """The memory that is read, and not that of another program, if it became one meanwhile."""
        memory = self._open("mem", os.O_RDWR)
        try:
            self.read(address, 1)
        except InspectError:
            os.close(memory)
            raise
        return memory

    def gather(self, addresses: Addresses, count: int) -> tuple[Bytes, Mask]:
        if len(addresses) * count > GATHER_BYTES_MAX:
            raise DamagedError(f"the heap's metadata asks for {len(addresses):,} pieces of memory")
        rows = np.zeros((len(addresses), count), np.uint8)
        readable = np.zeros(len(addresses), np.bool_)
        at = 0
        while at < len(addresses):
            end = min(at + PARTS_MAX, len(addresses))
            got = self._read_parts(addresses[at:end], rows[at:end], count)
            readable[at : at + got] = True
            at += got
            if at < end:
                # What stopped it: read alone, or skipped.
                readable[at] = self._read_row(int(addresses[at]), rows[at], count)
                at += 1
        if len(addresses) and not readable.any() and not self.is_alive():
            raise self._gone_or_kernel()
        return rows, readable

    def _read_parts(self, addresses: Addresses, rows: Bytes, count: int) -> int:
        """How many whole rows, from the first, one call could read."""
        if not self._vm_readv_works:
            return 0
        remote = np.empty(len(addresses), IOVEC)
        remote["base"], remote["bytes"] = addresses, count
        local = np.array([(rows.ctypes.data, rows.nbytes)], IOVEC)
        while True:
            got = self._libc.process_vm_readv(
                self.thread,
                ctypes.c_void_p(local.ctypes.data),
                ctypes.c_ulong(1),
                ctypes.c_void_p(remote.ctypes.data),
                ctypes.c_ulong(len(remote)),
                ctypes.c_ulong(0),
            )
            if got >= 0 or ctypes.get_errno() != errno.ESRCH or not self._has_moved():
                break
        if got < 0:
            if ctypes.get_errno() in (errno.ENOSYS, errno.EPERM):
                self._vm_readv_works = False
            return 0
        return int(got) // count

    def _read_row(self, address: int, row: Bytes, count: int) -> bool:
        try:
            data = os.pread(self._memory, count, address) if address <= ADDRESS_MAX else b""
        except OSError:
            return False
        row[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data) == count

    def resident_pages(self, start: int, end: int) -> npt.NDArray[np.uint64]:
        """The entries of /proc/PID/pagemap of a range of machine pages; GoneError when the process
        has ended."""
        count = (end - start) // MACHINE_PAGE_BYTES
        try:
            data = os.pread(self._open_pagemap(), count * 8, start // MACHINE_PAGE_BYTES * 8)
        except OSError as error:
            raise self._refusal(error) from None
        if len(data) < count * 8 and not self.is_alive():
            raise self._gone_or_kernel()
        return np.frombuffer(data.ljust(count * 8, b"\0"), np.uint64)

    def zero_pages(self, start: int, end: int) -> Mask | None:
        """Which machine pages of a range are the kernel's page of zeros, that nobody has to
        himself; None where the kernel does not tell."""
        zeros = np.zeros((end - start) // MACHINE_PAGE_BYTES, np.bool_)
        regions = np.empty(REGIONS_PER_SCAN, PAGE_REGION)
        scan = np.zeros(1, SCAN_ARGUMENT)
        scan["size"], scan["end"] = scan.nbytes, end
        scan["vec"], scan["vec_len"] = regions.ctypes.data, len(regions)
        scan["category_mask"] = scan["return_mask"] = PAGE_IS_PFNZERO
        at = start
        while at < end:
            scan["start"] = at
            try:
                count = fcntl.ioctl(self._open_pagemap(), PAGEMAP_SCAN, scan.view(np.uint8).data)
            except OSError:
                return None
            for region in regions[:count]:
                first, last = (int(region[edge]) - start for edge in ("start", "end"))
                zeros[first // MACHINE_PAGE_BYTES : last // MACHINE_PAGE_BYTES] = True
            walked = int(scan["walk_end"][0])
            if walked <= at:
                return None
            at = walked
        return zeros

    def _open_pagemap(self) -> int:
        if self._pagemap is None:
            self._pagemap = self._open("pagemap", os.O_RDONLY)
        return self._pagemap

    def stack_pointers(self) -> list[int]:
        """Of the threads that are in a system call; the kernel does not tell of those that run."""
        found: list[int] = []
        for task in self._tasks():
            try:
                words = (task / "syscall").read_text(encoding="ascii").split()
                if len(words) >= 3:
                    found.append(int(words[-2], 16))
            except (OSError, ValueError):
                continue
        return found

    def _tasks(self) -> list[Path]:
        """The folders of its threads; none when it has ended."""
        try:
            return list((self.place / "task").iterdir())
        except OSError:
            return []

    def thread_names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        nested = len(self._numbers(self.place, "NSpid")) > 1
        for task in self._tasks():
            try:
                number = self._numbers(task, "NSpid")[-1] if nested else int(task.name)
                names[number] = (task / "comm").read_text(errors="replace").rstrip("\n")
            except (OSError, ValueError, IndexError):
                continue
        return names

    @staticmethod
    def _numbers(task: Path, field: str) -> list[int]:
        """Numbers in the nested namespaces that a thread is in, the innermost last: of its own
        (NSpid) or its process (NStgid)."""
        try:
            status = (task / "status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        found = re.search(rf"^{field}:(.*)$", status, re.MULTILINE)
        return [int(word) for word in found[1].split()] if found is not None else []

    def close(self) -> None:
        os.close(self._memory)
        self._backing.close()
        if self._pagemap is not None:
            os.close(self._pagemap)
            self._pagemap = None
        if self._writable is not None:
            os.close(self._writable)
            self._writable = None
