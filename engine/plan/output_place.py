"""Checks of places that are written to: outputs and exports lie neither in the source nor in an output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from connectors.files import marked
from connectors.locations import Glob, extension, plain_place, split_glob
from connectors.registry import connectors
from connectors.storage import Place
from engine.core.errors import InputError
from engine.core.output_layout import FOLDERS, OUTPUT_FILES, POINTER
from engine.recipe.recipe import ExportSection, Recipe, SourceSection

EXPORT_FILES = (
    "rowsieve-0-00000.parquet",
    "v0/rowsieve-0-00000.parquet",
    "data/train-00000.parquet",
    "data/0.lance",
    "README.md",
)
"""Files of the kinds that exports hold, relative to their tables."""


def check_output_apart(recipe: Recipe) -> None:
    """Raise InputError if the source would also read what a run writes, so that it grows with every run.

    This holds for the files of the output and for those of its exports.
    """
    _check_apart(recipe.source, "output.path", recipe.output.path, OUTPUT_FILES)
    for number, export in enumerate(recipe.output.export):
        if export.catalog is not None:  # its path is a name
            continue
        key = f"output.export.{number}.path"
        if _path_within(recipe.source.path, export.path) == "":
            raise InputError(f"{key}: {export.path} is the source itself. Export to another place.")
        _check_apart(recipe.source, key, export.path, EXPORT_FILES)


def default_output(source: SourceSection, name: str) -> str:
    """Return ``curated/NAME``; where the source would read its files, the same beside the source's folder."""
    found = f"curated/{name}"
    folder = split_glob(source.path)[0]
    inner = _path_within(folder, found)
    if not inner or not _files_read(source, [f"{inner}/{file}" for file in OUTPUT_FILES]):
        return found
    return os.path.join(os.path.relpath(os.path.dirname(os.path.realpath(os.path.expanduser(folder)))), found)


def _check_apart(source: SourceSection, key: str, written: str, files: Sequence[str]) -> None:
    """Raise InputError, naming ``key``, if the source would read one of ``files`` in ``written``."""
    inner = _path_within(split_glob(source.path)[0], written)
    if inner is None or any(part[:1] in (".", "_") for part in inner.split("/")):  # listings leave these out
        return
    read = _files_read(source, [f"{inner}/{name}".lstrip("/") for name in files])
    if read:
        raise InputError(
            f"{key}: {written} lies in what source.path reads, {source.path}: the next run would read files "
            f"that this one writes, such as {read[0]}. Choose a place beside the source, or a pattern in "
            f"source.path that matches the data alone."
        )


def check_export_apart(export: ExportSection, output: Place | None = None) -> None:
    """Raise InputError if a table to export to lies among the files of an output.

    ``output`` is the output of the version to be exported. Other outputs are recognised by their files, on
    this host only.
    """
    if export.catalog is not None:  # its path is a name
        return
    outputs = [] if output is None else [str(output)]
    if "://" not in export.path:
        place = Path(os.path.realpath(os.path.expanduser(export.path)))
        folders = [folder for folder in (place, *place.parents) if (folder / POINTER).is_file()]
        outputs += [str(folder) for folder in folders if (folder / "versions").is_dir()]
    for folder in outputs:
        inner = _path_within(folder, export.path)
        if inner is not None and inner.partition("/")[0] in ("", *FOLDERS):
            raise InputError(
                f"{export.format}:{export.path} lies in the output {folder}, among the files of its "
                f"versions, which never change. Export to a place outside of it."
            )


def _path_within(folder: str, output: str) -> str | None:
    """Return the path of an output relative to a folder that it lies in; None for one elsewhere."""
    base, place = (
        plain_place(path if "://" in path else os.path.abspath(os.path.expanduser(path)))
        for path in (folder, output)
    )
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
