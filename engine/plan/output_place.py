"""Checks that the output of a recipe is no part of its source, which would grow with every run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from connectors.files import marked
from connectors.locations import Glob, extension, plain_place, split_glob
from connectors.registry import connectors
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.recipe.recipe import Recipe, SourceSection

OUTPUT_FILES = (
    "versions/v0/data/part-00000.parquet",
    "versions/v0/manifest.json",
    "versions/v0/README.md",
    "store/0/part-00000.parquet",
    "reports/v0.html",
    "models/0/cvar.png",
    "identities.json",
    "CURRENT",
)
"""Files of the kinds that an output holds, relative to it."""


def check_output_apart(recipe: Recipe) -> None:
    """Raise InputError if the source would also read the files of the output, which grows with every run."""
    source, output = recipe.source.path, recipe.output.path
    inner = _path_within(split_glob(source)[0], output)
    if inner is None or any(part[:1] in (".", "_") for part in inner.split("/")):  # listings leave these out
        return
    read = _files_read(recipe.source, [f"{inner}/{name}".lstrip("/") for name in OUTPUT_FILES])
    if read:
        raise InputError(
            f"output.path: {output} lies in what source.path reads, {source}: the next run would read files "
            f"that this one writes, such as {read[0]}. Choose an output.path beside the source, or a pattern "
            f"in source.path that matches the data alone."
        )


def _path_within(folder: str, output: str) -> str | None:
    """Return the path of an output relative to a folder that it lies in; None for one elsewhere."""
    base = plain_place(folder if "://" in folder else os.path.abspath(os.path.expanduser(folder)))
    place = plain_place(output if "://" in output else str(output_of(output)))
    if base is None or place is None or not f"{place}/".startswith(f"{base.rstrip('/')}/"):
        return None
    return place[len(base) :].strip("/")


def _files_read(source: SourceSection, names: Sequence[str]) -> list[str]:
    """Return those file names, relative to the source's folder, that a listing of the source would take.

    A listing takes the files that fit the pattern of the path, if it has one, and that have an ending of the
    format: of any format where the recipe names none. A pattern together with a format alone decides, so that
    files may have any ending. A folder that is a table, such as one of Delta Lake, names its files itself.
    """
    pattern, has_format = split_glob(source.path)[1], source.format != "auto"
    if not has_format and _is_table(source.path):
        return []
    fitting = [name for name in names if Glob(pattern).matches(name)] if pattern else [*names]
    if pattern and has_format:
        return fitting
    endings = _endings(source.format)
    return [name for name in fitting if extension(name, endings)]


def _is_table(folder: str) -> bool:
    """Return whether a folder is a table of some format, such as Delta Lake, by the files that mark one."""
    return any(kind.markers and marked(folder, kind.markers) for kind in connectors().values())


def _endings(format: str) -> set[str]:
    """Return the endings of a format's files, for ``auto`` of the files of all formats."""
    kinds = [kind for name, kind in connectors().items() if format in ("auto", name)]
    return {ending for kind in kinds for ending in kind.extensions}
