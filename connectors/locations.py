"""Operations on names of files as text: local paths, URIs and globs. Nothing here opens a file."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Collection
from urllib.parse import quote, unquote, urlsplit

from connectors.errors import ConnectorError

OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
NATIVE = ("file", *OBJECT_STORES, "hdfs", "viewfs")
"""URI schemes that pyarrow reads itself."""
AZURE = ("az", "azure", "abfs", "abfss")
"""Schemes of URIs whose user names a container."""


def is_quoted(path: str) -> bool:
    """Return whether a path is a URI with percent-encoded names, which those of fsspec are not."""
    return "://" in path and not is_fsspec(path)


def is_fsspec(path: str) -> bool:
    """Return whether fsspec, not pyarrow, reads what the URI names."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme not in NATIVE


def path_of(name: str) -> str:
    """Return a path or URI without its query."""
    return split_query(name)[0]


def folder_of(name: str) -> str:
    """Return the folder of a file, in the form of the file's name."""
    bare, query = split_query(name)
    return bare.rpartition("/")[0] + query


def beside(folder: str, base: str) -> str:
    """Return a file of a folder that :func:`folder_of` gave, by the last part of its name."""
    bare, query = split_query(folder)
    return f"{bare}/{base}{query}" if bare else base


def inside(folder: str, name: str) -> str:
    """Return a file of a folder, in the form of the folder's name.

    Raises ConnectorError for a name that leads out of the folder.
    """
    if os.path.isabs(name) or ".." in name.split("/") or "\\" in name:
        raise ConnectorError(f"{folder} lists the file {name!r}, which is not below it. Correct the list.")
    bare, query = split_query(folder)
    return f"{bare.rstrip('/')}/{quote(name, safe='/=') if is_quoted(folder) else name}{query}"


def below(path: str, name: str) -> str:
    """Return a listed file's path relative to the folder that ``path`` names, before its first wildcard."""
    return relative(name, split_glob(path)[0])


def extension(name: str, known: Collection[str]) -> str:
    """Return the longest of the ``known`` endings that a file's name has, or nothing."""
    bare = split_query(name)[0].lower()
    return max((ending for ending in known if bare.endswith(ending)), key=len, default="")


def split_query(path: str) -> tuple[str, str]:
    """Return a URI's path and its settings, from the question mark on."""
    head, mark, query = path.partition("?") if "://" in path else (path, "", "")
    return head, mark + query


def split_glob(path: str) -> tuple[str, str]:
    """Split a path before its first part with a wildcard: (folder, pattern)."""
    head, query = split_query(path)
    parts = head.split("/")
    wild = next((i for i, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    folder = "/".join(parts[:wild]) or ("/" if wild and head.startswith("/") else "")
    return folder + query, "/".join(parts[wild:])


def relative(name: str, folder: str) -> str:
    """Return a listed name relative to its folder, as the filesystem has it."""
    base = split_query(folder)[0].rstrip("/")
    rest = split_query(name)[0][len(base) :].lstrip("/")
    return unquote(rest) if is_quoted(folder) else rest


class Glob:
    """A glob: ``*`` and ``?`` match within one folder, ``**`` matches any number of folders.

    A recipe may give any pattern and a source any name, so the time of a match grows with the product of
    their lengths and no faster: folders are matched one after the other, each by the pattern of
    :func:`fnmatch.translate`, which never goes back behind a star.
    """

    def __init__(self, pattern: str) -> None:
        """Compile the pattern. Raises ConnectorError where ``**`` is only a part of a name."""
        parts = pattern.split("/")
        if any("**" in part and part != "**" for part in parts):
            raise ConnectorError(
                f"{pattern}: '**' stands for whole folders. Write it between two slashes, as in "
                f"data/**/*.csv."
            )
        self._parts = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]

    def matches(self, name: str) -> bool:
        """Return whether the glob matches a name, whose folders are separated by slashes."""
        places = self._skipped({0})
        for folder in name.split("/"):
            stay = {place for place in places if self._is_open(place)}
            on = {place + 1 for place in places if self._fits(place, folder)}
            places = self._skipped(stay | on)
        return len(self._parts) in places

    def _is_open(self, place: int) -> bool:
        return place < len(self._parts) and self._parts[place] is None

    def _fits(self, place: int, folder: str) -> bool:
        if place >= len(self._parts):
            return False
        part = self._parts[place]
        return part is None or (folder != "" and part.fullmatch(folder) is not None)

    def _skipped(self, places: set[int]) -> set[int]:
        """Add the places that follow when ``**`` matches no folder; at the end it matches at least one."""
        last, found = len(self._parts) - 1, set(places)
        for place in range(min(places, default=last), last):
            if place in found and self._is_open(place):
                found.add(place + 1)
        return found


def plain_place(path: str) -> str | None:
    """Return a path without links and ``..``, or a URI without its user and query.

    The user of a URI of Azure is its container. None for a URI that says a path in another spelling, or with
    ``..``: what writes there may read it in different ways.
    """
    if "://" not in path:
        return None if ":" in path.partition("/")[0] else os.path.realpath(os.path.expanduser(path))
    try:
        parts = urlsplit(path)
    except ValueError:
        return None
    key = unquote(parts.path)
    if parts.scheme == "file":
        return os.path.realpath(key) if path.partition("://")[2] == key else None
    if {".", ".."} & set(key.split("/")):
        return None
    container = f"{parts.username}@" if parts.scheme in AZURE and parts.username else ""
    return f"{parts.scheme}://{container}{parts.netloc.rpartition('@')[2]}".lower() + key.rstrip("/")
