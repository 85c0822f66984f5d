"""Paths of a recipe that runs on another machine. A path that would mean another file there is an error."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from engine.core.errors import InputError
from engine.recipe.recipe import Recipe


def paths_for_cluster(
    recipe: Recipe, *, shared_files: bool, working_dir: Path | None = None, shipped: Iterable[str] = ()
) -> Recipe:
    """Return the recipe with paths for the cluster and without ``run.address``: a job uses its own cluster.

    URIs and absolute paths stay. Relative paths become absolute if the cluster sees this machine's files
    (``shared_files``). Otherwise a relative input must be among the files ``shipped`` from ``working_dir``
    and becomes relative to it. A relative output is an error, since the job's folder is deleted at its end.

    Raises
    ------
    InputError
        A path is not usable on the cluster.

    """
    names = tuple(shipped)

    def place(key: str, path: str) -> str:
        if not _is_relative(path):
            return path
        if shared_files:
            return str(Path.cwd() / path)
        if key.startswith("output."):
            raise InputError(
                f"{key}: {path!r} is relative, and a job's own folder is deleted with it. Name storage that "
                f"the whole cluster writes to (/mnt/..., or a URI such as s3://...), or say --shared-files "
                f"where the cluster sees this machine's files under the same paths."
            )
        return _shipped(key, path, working_dir, names)

    return replace_paths(recipe, place)


def replace_paths(recipe: Recipe, place: Callable[[str, str], str]) -> Recipe:
    """Return the recipe with ``place(key, path)`` for each of its paths, and without ``run.address``."""
    resolved = recipe.model_dump(exclude_unset=True, exclude={"run": {"address"}})
    for name, section in _sections_with_paths(resolved):
        in_catalog = section.get("catalog") or section.get("options", {}).get("catalog")
        if "path" in section and not in_catalog:
            section["path"] = place(f"{name}.path", section["path"])
    if not resolved.get("run", True):
        del resolved["run"]
    return Recipe.parse(resolved)


def _sections_with_paths(resolved: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sections of a recipe that name a file, a folder or a table of a catalog."""
    yield "source", resolved["source"]
    stored = resolved.get("operators", {}).get("gradients", {}).get("stored")
    if isinstance(stored, dict):
        yield "operators.gradients.stored", stored
    yield "output", resolved["output"]
    for number, export in enumerate(resolved["output"].get("export", ())):
        yield f"output.export.{number}", export


def _is_relative(path: str) -> bool:
    return "://" not in path and not Path(path).is_absolute()


def _shipped(key: str, path: str, folder: Path | None, names: tuple[str, ...]) -> str:
    """Return the path relative to the shipped folder. Raises InputError if no shipped file matches it."""
    reason = "is relative to this folder, which the cluster does not have"
    if folder is not None:
        reason = f"is none of the {len(names)} files shipped from {folder}"
        below = os.path.relpath(path, folder)
        inside = not below.startswith("..")
        if inside and any(n.startswith(f"{below}/") or fnmatch.fnmatch(n, below) for n in names):
            return below
    raise InputError(
        f"{key}: {path!r} {reason}. Name storage that the whole cluster reads (/mnt/..., or a URI such as "
        f"s3://...); or ship small data with --working-dir; or say --shared-files where the cluster "
        f"sees this machine's files."
    )
