"""Paths of a recipe that runs on another machine. A path that would mean another file there is an error."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from engine.core.errors import InputError
from engine.jobs.package import PACKAGES
from engine.recipe.recipe import Recipe


def paths_for_cluster(
    recipe: Recipe, *, shared_files: bool, working_dir: Path | None = None, shipped: Iterable[str] = ()
) -> Recipe:
    """Return the recipe with paths for the cluster and without ``run.address``: a job uses its own cluster.

    URIs and absolute paths stay. Relative paths, and those below a home folder (``~``), become absolute if
    the cluster sees this machine's files (``shared_files``). Otherwise such an input must be among the files
    ``shipped`` from ``working_dir`` and becomes relative to it. Such an output is an error, since the job's
    folder is deleted at its end.

    Raises
    ------
    InputError
        A path is not usable on the cluster.

    """
    names = tuple(shipped)

    def place(key: str, path: str) -> str:
        if "://" in path or Path(path).is_absolute():
            return path
        if shared_files:
            return str(Path.cwd() / os.path.expanduser(path))
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
    for key, path in recipe.paths():
        *outer, last = key.split(".")
        holder: Any = resolved
        for name in outer:
            holder = holder[name] if isinstance(holder, dict) else holder[int(name)]
        entry = last if isinstance(holder, dict) else int(last)
        holder[entry] = holder[entry].removesuffix(path) + place(key, path)
    if not resolved.get("run", True):
        del resolved["run"]
    return Recipe.parse(resolved)


def _shipped(key: str, path: str, folder: Path | None, names: tuple[str, ...]) -> str:
    """Return the path relative to the shipped folder. Raises InputError if no shipped file matches it."""
    reason = "is relative to this folder, which the cluster does not have"
    if folder is not None:
        reason = f"is none of the {len(names)} files shipped from {folder}"
        below = os.path.relpath(os.path.expanduser(path), folder)
        if below == os.curdir:
            return _whole_folder(key, path, names)
        inside = not below.startswith("..")
        if inside and any(n.startswith(f"{below}/") or fnmatch.fnmatch(n, below) for n in names):
            return below
    raise InputError(
        f"{key}: {path!r} {reason}. Name storage that the whole cluster reads (/mnt/..., or a URI such as "
        f"s3://...); or ship small data with --working-dir; or say --shared-files where the cluster "
        f"sees this machine's files."
    )


def _whole_folder(key: str, path: str, names: tuple[str, ...]) -> str:
    """Return the path of the job's own folder. Raises InputError if Rowsieve's files lie there, too."""
    if not any(name.partition("/")[0] in PACKAGES for name in names):
        return os.curdir
    raise InputError(
        f"{key}: {path!r} is the shipped folder itself, and in the job Rowsieve's own files lie in it, too. "
        f"Name the files, {os.path.join(path, '*.parquet')!r}; or move them to a folder inside; or say "
        f"--installed where the cluster has Rowsieve."
    )
