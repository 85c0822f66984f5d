"""Files and folders beneath a root, reached by descriptors, so that no link in between leads out of it.

Whoever can write a shared folder may put a link in place of one of its folders at any time, also between a
check and the use of a path. Here every folder from the root down is opened from the one before it, without
following links, and what is written, renamed or removed is named by its last name within the open folder.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from connectors.base import ConnectorError

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OLD_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not to wait for a pipe's writer
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors of a disk or a quota without room."""


@contextmanager
def folder_beneath(root: Path, folder: Path, *, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of ``folder``, which lies beneath ``root`` or is it; a link may lead to the root.

    Parameters
    ----------
    create : make the folders that do not exist, the root included.

    Raises
    ------
    ConnectorError
        One of the folders beneath the root is a link.
    FileNotFoundError
        One of them does not exist.
    NotADirectoryError
        One of them is a file.
    ValueError
        The folder does not lie beneath the root.
    """
    names = folder.relative_to(root).parts
    if ".." in names:
        raise ValueError(f"{folder} does not lie beneath {root}")
    if create:
        root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place, name in enumerate(names, 1):
            inner = _open_folder(handle, name, root.joinpath(*names[:place]), create)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _open_folder(parent: int, name: str, path: Path, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except OSError:
        check_no_link(parent, name, path)
        raise


def check_no_link(parent: int, name: str, path: Path) -> None:
    """Raise ConnectorError, which names ``path``, if ``name`` in the open folder ``parent`` is a link."""
    try:
        is_link = stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return
    if is_link:
        raise ConnectorError(
            f"{path} is a link. Nothing is read, written or removed behind links of an output: find out who "
            f"put it there, and put the file or folder back."
        )


def remove_tree_beneath(root: Path, folder: Path) -> None:
    """Remove a folder with all that is in it; silent where there is none. A link itself is removed.

    Raises ConnectorError where a folder above it is a link.
    """
    with suppress(FileNotFoundError), folder_beneath(root, folder.parent) as parent:
        try:
            shutil.rmtree(folder.name, dir_fd=parent)  # follows no links further down
        except NotADirectoryError:
            os.unlink(folder.name, dir_fd=parent)
        except OSError:
            if _is_link(parent, folder.name):
                os.unlink(folder.name, dir_fd=parent)
            else:
                shutil.rmtree(folder.name, ignore_errors=True, dir_fd=parent)


def _is_link(parent: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    return False


def unlink_beneath(root: Path, file: Path) -> None:
    """Remove a file, or a link; silent where there is none. Raises ConnectorError and OSError."""
    with suppress(FileNotFoundError), folder_beneath(root, file.parent) as parent:
        os.unlink(file.name, dir_fd=parent)


def rename_beneath(root: Path, source: Path, target: Path) -> None:
    """Rename a file or folder, in place of one that is there. Raises ConnectorError and OSError."""
    with folder_beneath(root, source.parent) as old, folder_beneath(root, target.parent) as new:
        os.replace(source.name, target.name, src_dir_fd=old, dst_dir_fd=new)


@contextmanager
def old_file_beneath(root: Path, file: Path) -> Iterator[io.BufferedReader]:
    """Yield a file to read, which is a regular one and lies where it is named: no link leads to it.

    Raises
    ------
    ConnectorError
        The file or a folder above it, beneath the root, is a link; or it is not a regular file.
    OSError
        It cannot be read.
    """
    with folder_beneath(root, file.parent) as parent:
        try:
            handle = os.open(file.name, OLD_FILE, dir_fd=parent)
        except OSError:
            check_no_link(parent, file.name, file)
            raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):  # before it is made a file, which a folder cannot be
        os.close(handle)
        raise ConnectorError(f"{file} is not a regular file. Remove it.")
    with open(handle, "rb") as opened:
        yield opened


def link_beneath(root: Path, source: Path, target: Path) -> None:
    """Make ``target`` another name of the regular file ``source``, or a copy where there are no hard links.

    Raises ConnectorError where the source, or a folder above either beneath the root, is a link; and OSError.
    """
    with old_file_beneath(root, source) as opened:
        unlink_beneath(root, target)
        if not _hard_link(root, source, target, os.fstat(opened.fileno())):
            with new_file_beneath(root, target, create=False) as copy:
                shutil.copyfileobj(opened, copy)


def _hard_link(root: Path, source: Path, target: Path, wanted: os.stat_result) -> bool:
    """Return whether ``target`` is a name of the file ``wanted`` now; else nothing is left there."""
    with folder_beneath(root, source.parent) as old, folder_beneath(root, target.parent) as new:
        try:
            os.link(source.name, target.name, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)
        except OSError:
            return False
        if os.path.samestat(os.stat(target.name, dir_fd=new, follow_symlinks=False), wanted):
            return True
        os.unlink(target.name, dir_fd=new)  # the source was replaced after it was opened
        return False


@contextmanager
def new_file_beneath(
    root: Path, file: Path, *, durable: bool = True, sync_folder: bool = False, create: bool = True
) -> Iterator[io.BufferedRandom]:
    """Yield a new file to write and read, which takes its name when the block ends without an error.

    A reader sees the old file or the whole new one.

    Parameters
    ----------
    durable : flush the file to disk; without it a crash of the machine may lose it.
    sync_folder : flush its folder too; without it a crash may forget the file's name.
    create : make folders that do not exist.

    Raises
    ------
    ConnectorError
        A folder beneath the root is a link.
    OSError
        It cannot be written. The error of a full disk names ``file``.
    """
    with folder_beneath(root, file.parent, create=create) as parent:
        temporary = f".{file.name}.{uuid.uuid4().hex}.tmp"
        try:
            with open(os.open(temporary, NEW_FILE, 0o666, dir_fd=parent), "wb+") as handle:
                yield handle
                handle.flush()
                _sync(handle.fileno(), durable)
            os.replace(temporary, file.name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException as error:
            with suppress(OSError):  # the error of the write is the one to report
                os.unlink(temporary, dir_fd=parent)
            if isinstance(error, OSError) and error.errno in FULL and error.filename in (None, temporary):
                error.filename = str(file)  # writes to an open file name none
            raise
        _sync(parent, sync_folder)


def _sync(handle: int, wanted: bool) -> None:
    if wanted:
        os.fsync(handle)
