"""What every source does while it lists: look at each file, leave out what cannot be read, find some rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import Any, TypeVar

from connectors.base import Connector, ConnectorError, CorruptError, SourceSpec
from connectors.paths import find_files

T = TypeVar("T")


def each_file(
    spec: SourceSpec, kind: type[Connector[Any]], look: Callable[[str, str], T]
) -> tuple[dict[str, T], dict[str, str]]:
    """What ``look(path, first_path)`` finds in each file, and why files were skipped, both by path.

    Raises ConnectorError, and CorruptError unless files that cannot be read are to be left out.
    """
    paths = find_files(spec, kind)
    found: dict[str, T] = {}
    skipped: dict[str, str] = {}
    for path in paths:
        try:
            found[path] = look(path, paths[0])
        except CorruptError as error:
            if not spec.skip_corrupt:
                raise
            skipped[path] = str(error)
    return found, skipped


def check_rows(spec: SourceSpec, shards: Sized, skipped: Mapping[str, str]) -> None:
    """Raise ConnectorError where no shard is left."""
    if not shards:
        reason = f" {next(iter(skipped.values()))}" if skipped else ""
        raise ConnectorError(f"{spec.path} holds no rows. Point source.path at files with rows.{reason}")
