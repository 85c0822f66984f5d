"""What every source does while it lists: look at each file, leave out what cannot be read, find some rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from typing import TypeVar

from connectors.base import ConnectorError, CorruptError, SourceSpec
from connectors.paths import each

T = TypeVar("T")


def each_file(
    spec: SourceSpec, paths: Sequence[str], look: Callable[[str], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """What ``look`` finds in each file, and why files were skipped, both by path.

    Raises ConnectorError, and CorruptError unless files that cannot be read are to be left out.
    """
    found: dict[str, T] = {}
    skipped: dict[str, str] = {}
    for path, seen in zip(paths, each(spec, paths, partial(_look, spec, look)), strict=True):
        if isinstance(seen, CorruptError):
            skipped[path] = str(seen)
        else:
            found[path] = seen
    return found, skipped


def _look(spec: SourceSpec, look: Callable[[str], T], path: str) -> T | CorruptError:
    try:
        return look(path)
    except CorruptError as error:
        if not spec.skip_corrupt:
            raise
        return error


def check_rows(spec: SourceSpec, shards: Sized, skipped: Mapping[str, str]) -> None:
    """Raise ConnectorError where no shard is left."""
    if not shards:
        raise no_row(spec.path, skipped, filtered=spec.filter is not None)


def no_row(path: str, skipped: Mapping[str, str], *, filtered: bool) -> ConnectorError:
    """The error of a source without rows; it shows why a file was skipped, if one was."""
    reason = f" {next(iter(skipped.values()))}" if skipped else ""
    if filtered:
        return ConnectorError(f"{path}: source.filter leaves no row. Widen it.{reason}")
    return ConnectorError(f"{path} holds no rows. Point source.path at files with rows.{reason}")
