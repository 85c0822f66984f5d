"""The layout of an output: its place, the folders of its versions, and the pointer to the current version."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from connectors.base import ConnectorError
from connectors.storage import Place, place_of
from engine.core.errors import InputError

POINTER = "CURRENT"
FORMAT = 1
"""Version of the layout of published files."""

FILES_OF_FOLDERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "versions": ("v0/data/part-00000.parquet", "v0/manifest.json", "v0/croissant.json", "v0/README.md"),
        "store": ("0/part-00000.parquet", "0/part-00000.json"),
        "reports": ("v0.html", "v0.groups.json"),
        "models": ("0/ensemble.json", "0/cvar.png", "0/report.html"),
        "compare": ("0.json", "0.png"),
        "runs": ("v0.json", "increments/0.json"),
        "runs/pending": ("0.json",),
        "runs/lineage": ("0.json",),
        "registered": ("0.json",),
        "withdrawn": ("v0.json",),
        "removed": ("v0.json",),
        "exported": ("v0/0.json",),
        "input": ("part-00000.parquet",),
        ".lease": (),  # hidden, so that no source reads it
    }
)
"""Each folder of an output, with one file of each kind that is written below it. What they are for is written
in ``engine/README.md``."""
FOLDERS = tuple(FILES_OF_FOLDERS)
"""Folders of an output below which files are written and removed."""
OUTPUT_FILES = (
    *(f"{folder}/{name}" for folder, names in FILES_OF_FOLDERS.items() for name in names),
    "identities.json",
    POINTER,
)
"""One file of each kind that an output holds, relative to it."""
FOLDERS_OF_FOLDERS = ("store", "versions", "models", "exported")
"""The folders of ``FOLDERS`` in which whole folders are replaced and removed."""


def output_of(path: str | Place) -> Place:
    """Return the place of an output: an absolute folder or a prefix of an object store.

    Raises InputError for another URI, and for a file, such as a recipe.
    """
    try:
        place = place_of(path)
    except ConnectorError as error:
        raise InputError(f"output.path: {error}") from None
    if isinstance(place, Path) and place.is_file():
        raise InputError(
            f"{path} is a file, not a folder. Name a folder; that of a recipe is its key output.path."
        )
    return place


def split_version(text: str) -> tuple[str, str]:
    """Return place and version of ``PLACE@VERSION``; a URI may have an "@" before its host too.

    Examples
    --------
    >>> split_version("demo/out@v8332abe5d7e9")
    ('demo/out', 'v8332abe5d7e9')
    >>> split_version("s3://user@host/out")
    ('s3://user@host/out', '')

    """
    place, mark, name = text.rpartition("@")
    inside = "/" in name or ("://" in text and "/" not in place.partition("://")[2])
    return (text, "") if inside or not mark else (place, name)


def version_folder(output: Place, version: str) -> Place:
    """Return the folder of a published version."""
    return output / "versions" / version


def check_real_folders(output: Place) -> None:
    """Check that an output leads to no other folder, before anything in it is written or removed.

    Whoever can write a shared output could otherwise make the next run remove files elsewhere. Nothing is
    checked on an object store, which has no links.

    Raises
    ------
    InputError
        One of the output's own folders, or an entry of its store, versions or models, is a link.

    """
    if not isinstance(output, Path):
        return
    for name in FOLDERS:
        _check_real_folder(output / name)
    for name in FOLDERS_OF_FOLDERS:
        with suppress(FileNotFoundError), os.scandir(output / name) as entries:
            links = sorted(entry.path for entry in entries if entry.is_symlink())
            if links:
                raise InputError(_link_message(Path(links[0])))


def check_own_files(folder: Path, what: str) -> None:
    """Check that a folder of an output holds files and folders alone, before they are read or written.

    Parameters
    ----------
    what : what the folder is, for the error.

    Raises
    ------
    InputError
        A link is below the folder, which could lead to files of the next user; or a pipe or the like.

    """
    for place, folders, files in os.walk(folder):
        for path in (Path(place) / name for name in (*folders, *files)):
            if not _is_own(path):
                raise InputError(
                    f"{path} is a link or no regular file in {what}. Rowsieve neither writes nor reads "
                    "behind links of an output. Remove it."
                )


def _is_own(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:  # another process has removed it
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _check_real_folder(folder: Path) -> None:
    try:
        mode = folder.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if stat.S_ISLNK(mode):
        raise InputError(_link_message(folder))
    if not stat.S_ISDIR(mode):
        raise InputError(f"{folder} is not a folder, as it is in an output of Rowsieve. Move it elsewhere.")


def _link_message(place: Path) -> str:
    return (
        f"{place} is a link to {os.readlink(place)!r}. Rowsieve writes and removes nothing behind links of "
        f"an output: replace the link by a folder, or remove it. To keep an output on another disk, name "
        f"that disk in output.path."
    )
