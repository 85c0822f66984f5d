"""Running a recipe from Python, in this process or as a job of a Ray cluster."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.core.errors import InputError
from engine.recipe.recipe import Recipe

if TYPE_CHECKING:
    from engine.jobs.submission import Submission
    from engine.publish.results import RunResult

RecipeLike = Recipe | Mapping[str, Any] | str | Path
"""A recipe, a mapping with its sections, or the path of a YAML file."""


def run(recipe: RecipeLike, *, overrides: Sequence[str] = (), verbose: bool = False) -> RunResult:
    """Run a recipe and publish its version. Work that was committed before is reused.

    The version becomes current only after it has been written completely, so readers never see a part of it.

    Parameters
    ----------
    recipe
        A ``Recipe``, a mapping with the same sections, or the path of a YAML file.
    overrides
        Changes such as ``"operators.split.validation=0.3"``, as with ``rowsieve run --set``.
    verbose
        Show progress on standard error, and the output of Ray.

    Returns
    -------
    RunResult
        Name and folder of the version, its manifest, the report, and what each operator did.

    Raises
    ------
    RowsieveError
        One paragraph that names the key, file or row at fault and says what to do.

    Examples
    --------
    >>> import tempfile, numpy as np, pandas as pd, rowsieve
    >>> rng = np.random.default_rng(0)
    >>> label = rng.integers(0, 2, 200)
    >>> cue = np.where(rng.random(200) < 0.85, label, 1 - label)
    >>> folder = tempfile.mkdtemp()
    >>> frame = pd.DataFrame({"cue": cue + rng.normal(0, 0.1, 200), "label": label})
    >>> frame.to_parquet(f"{folder}/rows.parquet")
    >>> result = rowsieve.run({
    ...     "name": "example",
    ...     "source": {"path": f"{folder}/rows.parquet", "label": "label"},
    ...     "output": {"path": f"{folder}/out"},
    ...     "run": {"executor": "local"},
    ...     "report": {"enabled": False},
    ...     "tracking": {"enabled": False},
    ... })
    >>> result.manifest["rows"]
    200

    """
    from engine.core.events import silent
    from engine.runs.runner import run as run_recipe

    loaded = load(recipe, overrides)
    if not verbose:
        return run_recipe(loaded, listener=silent)
    from engine.cli.progress import listener_for

    with listener_for("auto") as listener:
        return run_recipe(loaded, listener=listener, verbose=True)


def submit(
    recipe: RecipeLike,
    address: str,
    *,
    overrides: Sequence[str] = (),
    key: str | None = None,
    code: str | Path = "source",
    working_dir: Path | None = None,
    excludes: Sequence[str] = (),
    shared_files: bool = False,
    env: Mapping[str, str] | None = None,
    again: bool = False,
) -> Submission:
    """Run a recipe as a job of a Ray cluster. Submitting the same run twice gives the same job.

    Parameters
    ----------
    recipe
        A ``Recipe``, a mapping with the same sections, or the path of a YAML file.
    address
        Dashboard of the head node, such as ``http://head:8265``. The token comes from ``RAY_AUTH_TOKEN`` or
        ``RAY_AUTH_TOKEN_PATH``.
    overrides
        Changes such as ``"output.path=s3://data/out"``, as with ``rowsieve submit --set``.
    key
        Name of the run, such as a date, if its source cannot be listed from here. By default the name of the
        version that the run will publish.
    code
        ``"source"``: send the packages of this installation. ``"installed"``: send no code, since the cluster
        has Rowsieve. Or the path of a wheel of Rowsieve.
    working_dir, excludes
        Folder to send with the job, and patterns of its files to leave out.
    shared_files
        Whether the cluster sees this machine's files under the same paths.
    env
        Environment variables of the job. Everyone who may list the cluster's jobs can read them.
    again
        Repeat a run that has succeeded.

    Returns
    -------
    Submission
        The job's handle, and whether this call made it.

    Raises
    ------
    InputError
        The recipe cannot run there, or a token is missing or refused.
    InfeasibleError
        No cluster answers at the address.

    Examples
    --------
    >>> import rowsieve
    >>> recipe = {"name": "example", "source": {"path": "s3://data/in", "label": "y"},
    ...           "output": {"path": "s3://data/out"}}
    >>> rowsieve.submit(recipe, "ray://head:10001", key="2026-11-21")
    Traceback (most recent call last):
    ...
    engine.core.errors.InputError: --address ray://head:10001: give the dashboard of the head node, ...

    """
    from engine.jobs.submission import submit as submit_recipe

    return submit_recipe(
        load(recipe, overrides),
        address,
        key=key,
        code=code,
        working_dir=working_dir,
        excludes=excludes,
        shared_files=shared_files,
        env=env,
        again=again,
    )


def load(recipe: RecipeLike, overrides: Sequence[str] = ()) -> Recipe:
    """Return a checked recipe with overrides applied. Raises InputError."""
    if isinstance(overrides, str):
        raise InputError(f"overrides={overrides!r}: give a list of changes, such as [{overrides!r}].")
    if isinstance(recipe, (str, Path)):
        return Recipe.load(recipe, overrides)
    if isinstance(recipe, Recipe) and not overrides:
        return recipe
    if not isinstance(recipe, (Recipe, Mapping)):
        raise InputError(
            f"recipe={recipe!r}: give a Recipe, a mapping with its sections, or the path of a YAML file."
        )
    given = recipe.model_dump(exclude_unset=True) if isinstance(recipe, Recipe) else recipe
    return Recipe.parse(copy.deepcopy(dict(given)), overrides=overrides)
