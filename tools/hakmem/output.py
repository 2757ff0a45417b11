"""Files that a verb writes: they are there as a whole, or as they were before."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

# What a folder or a mount point says that takes no new file, or not in the place of the old one.
NO_PLACE = frozenset(
    (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.EEXIST, errno.EBUSY)
)


def write_whole(path: Path, data: bytes) -> None:
    """OSError when it did not fit: the old file is then as it was, or there is none. A pipe, a
    device, a link and what else a new file cannot stand for is written into, as `>` does it."""
    try:
        before = path.lstat()
    except FileNotFoundError:
        before = None
    if before is not None and not _is_replaceable(path, before):
        path.write_bytes(data)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write_new(beside, data, before)
        _rename(beside, path)
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        path.write_bytes(data)


def write_new(path: Path, data: bytes) -> None:
    """FileExistsError when there is such a file; after any other error there is none."""
    _write_new(path, data, None)


def _is_replaceable(path: Path, status: os.stat_result) -> bool:
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink == 1
        and status.st_uid == os.geteuid()
        and os.access(path, os.W_OK, effective_ids=True)
    )


def _write_new(path: Path, data: bytes, like: os.stat_result | None) -> None:
    file = path.open("xb")
    try:
        with file:
            if like is not None:
                if os.fstat(file.fileno()).st_gid != like.st_gid:
                    os.fchown(file.fileno(), -1, like.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            file.write(data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _rename(beside: Path, path: Path) -> None:
    try:
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
