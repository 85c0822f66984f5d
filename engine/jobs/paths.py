"""Paths of a recipe that is to run elsewhere: each must mean the same file there, or the user is told."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from pathlib import Path

from engine.errors import InputError
from engine.recipe import Recipe


def portable(
    recipe: Recipe, *, shared_files: bool, working_dir: Path | None = None, shipped: Iterable[str] = ()
) -> Recipe:
    """The recipe with paths that hold on the cluster, and no ``run.address``: a job uses its own cluster.

    URIs and absolute paths stay. Relative ones become absolute where the cluster sees this machine's files
    (``shared_files``). Else a relative source must be among the files ``shipped`` from ``working_dir``, and
    is then relative to it; a relative output would lie in the job's own folder, which goes with it.

    Raises
    ------
    InputError
        A path would mean nothing on the cluster.

    """
    source, output = recipe.source.path, recipe.output.path
    if shared_files:
        source, output = _absolute(source), _absolute(output)
    if _is_relative(output):
        raise InputError(
            f"output.path: {output!r} is relative, and a job's own folder is deleted with it. Name storage "
            f"that the whole cluster writes to (--set output.path=/mnt/..., or a URI such as s3://...), or "
            f"say --shared-files where the cluster sees this machine's files under the same paths."
        )
    if _is_relative(source):
        source = _shipped(source, working_dir, tuple(shipped))
    return recipe.model_copy(
        update={
            "source": recipe.source.model_copy(update={"path": source}),
            "output": recipe.output.model_copy(update={"path": output}),
            "run": recipe.run.model_copy(update={"address": None}),
        }
    )


def _is_relative(path: str) -> bool:
    return "://" not in path and not Path(path).is_absolute()


def _absolute(path: str) -> str:
    return str(Path.cwd() / path) if _is_relative(path) else path


def _shipped(path: str, folder: Path | None, names: tuple[str, ...]) -> str:
    """The path below the shipped folder. Raises InputError where nothing of it is shipped."""
    if folder is not None:
        below = os.path.relpath(path, folder)
        inside = not below.startswith("..")
        if inside and any(n.startswith(f"{below}/") or fnmatch.fnmatch(n, below) for n in names):
            return below
    raise InputError(
        f"source.path: {path!r} is relative to this folder, which the cluster does not have. Name storage "
        f"that the whole cluster reads (--set source.path=/mnt/..., or a URI such as s3://...); or ship "
        f"small data with --working-dir; or say --shared-files where the cluster sees this machine's files."
    )
