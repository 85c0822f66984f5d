"""Lists the files of a local folder, with symbolic links followed, and notices files that links make two."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from connectors.base import ConnectorError
from connectors.links import check_inside

MAX_VISITS = 64
"""Most paths by which a listing enters one folder. Folders that hold links to each other have far more."""


@dataclass(frozen=True)
class FoundFile:
    """A regular file below a folder."""

    name: str
    """Path relative to the folder."""
    size: int
    """Bytes."""
    mtime_ns: int
    changed_ns: int
    """Time of the last change of its inode, which nobody can set."""
    linked: bool
    """Whether a symbolic link below the folder leads to it."""


@dataclass(frozen=True)
class _Folder:
    """A folder to list."""

    prefix: str
    """Its path relative to the listed folder, with a slash at its end."""
    above: tuple[str, ...]
    """Real paths of the folders that it lies in, and its own."""
    linked: bool


@dataclass(frozen=True)
class FolderListing:
    """Regular files below a local folder, without names that start with ``.`` or ``_``.

    Links are followed. A folder is not entered again from within itself, as by a link to the folder above.
    """

    folder: str
    """Absolute path."""
    outside_links: bool
    """Whether links may lead out of the folder."""
    visits: Counter[str] = field(default_factory=Counter)

    def files(self) -> Iterator[FoundFile]:
        """Yield the files.

        Raises
        ------
        ConnectorError
            A link leads out of the folder, a name is not UTF-8, or there are more than ``MAX_VISITS`` paths
            to one folder.
        OSError
            A folder cannot be listed.

        """
        waiting = [_Folder("", (os.path.realpath(self.folder),), linked=False)]
        while waiting:  # no recursion: a path may name a thousand folders
            here = waiting.pop()
            for entry in _shown_entries(os.path.join(self.folder, here.prefix)):
                found = self._inspect(entry, here)
                if isinstance(found, FoundFile):
                    yield found
                elif found is not None:
                    waiting.append(found)

    def _inspect(self, entry: os.DirEntry[str], here: _Folder) -> FoundFile | _Folder | None:
        """Return an entry as a file or a folder to list; None for a loop, and for what is neither."""
        is_link = entry.is_symlink()
        if is_link and not self.outside_links:
            check_inside(self.folder, entry.path)
        found, name, linked = _stat(entry), here.prefix + entry.name, here.linked or is_link
        if found is not None and stat.S_ISREG(found.st_mode):
            return FoundFile(name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, linked)
        if found is None or not stat.S_ISDIR(found.st_mode):
            return None
        real = os.path.realpath(entry.path) if is_link else os.path.join(here.above[-1], entry.name)
        if real in here.above:
            return None
        self._count_visit(real, entry.path)
        return _Folder(f"{name}/", (*here.above, real), linked)

    def _count_visit(self, real: str, path: str) -> None:
        self.visits[real] += 1
        if self.visits[real] > MAX_VISITS:
            raise ConnectorError(
                f"{path}: symbolic links lead to {real} by more than {MAX_VISITS} paths. Remove links of "
                f"folders to each other, or name the folder itself in source.path."
            )


def _shown_entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder that are not hidden. Raises ConnectorError for a name not in UTF-8."""
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if entry.name[0] not in "._"]
    for entry in shown:
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            raise ConnectorError(
                f"The name is not UTF-8: {os.fsencode(entry.path)!r}. Rename that file or folder."
            ) from None
    return shown


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return what an entry is, links followed; None for a link that leads nowhere."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise


def check_distinct(places: Mapping[str, str]) -> None:
    """Raise ConnectorError where symbolic links make one file two, so that each row would count twice.

    ``places``: name of each file, as errors show it, to its absolute path.
    """
    known: dict[str, str] = {}
    for name, place in places.items():
        other = known.setdefault(os.path.realpath(place), name)
        if other != name:
            raise ConnectorError(
                f"{other} and {name} are one file, by a symbolic link: each of its rows would count twice. "
                f"Remove the link, or name in source.path a folder or pattern with one of them alone."
            )
