"""Curating one table in this process, as in a notebook: ``rowsieve.curate``."""

from __future__ import annotations

import html
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.foundation.remedies import without_recipe
from engine.core.errors import BudgetError, InputError, RowsieveError
from engine.execution.quarantine import read_quarantine
from engine.plan.planner import make_plan
from engine.plan.sample import count_label, draw_sample
from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.training.data.version import open_version
from operators.arrays import NOISE
from operators.base import SPLIT, WEIGHT
from operators.counts import count
from operators.ingest.label_checks import check_labels
from operators.leaks import Leak
from operators.metrics.group_scores import MIN_ROWS, compare_groups, worst_of

from .execution import run
from .published import PublishedVersion
from .python_remedies import with_arguments, with_whole_chain
from .tables import write_input

if TYPE_CHECKING:
    import pandas as pd

SHOWN_ROWS = 5
"""An error names this many faulty rows."""
ARGUMENTS = {"path": "data", "label": "label", "features": "features"}
"""Keys of the recipe's section ``source`` that are arguments of ``curate``, by their names there."""
URI = re.compile(r"[A-Za-z][\w+.-]+:/")
"""Beginning of a URI; a ``Path`` has made one slash of two."""


class Curated(PublishedVersion):
    """Result of ``rowsieve.curate``: a published version with its groups, weights and split.

    Rows keep the order of the data that were given. The files lie in a temporary folder, which exists as
    long as this object, unless ``curate`` was given an ``output``.
    """

    leaks: tuple[Leak, ...]
    """Columns that tell the label on their own in a sample of the rows, the best first: each has a ``name``,
    and as ``score`` the balanced accuracy on unseen rows."""

    def __init__(
        self,
        recipe: Recipe,
        temporary: tempfile.TemporaryDirectory[str] | None,
        result: RunResult,
    ) -> None:
        super().__init__(open_version(f"{recipe.output.path}@{result.version}"))
        self.recipe = recipe
        self.leaks = result.leaks
        self._temporary = temporary  # keeps the folder alive

    @cached_property
    def table(self) -> pa.Table:
        """All rows with the source's columns and the published ones."""
        return self.to_arrow()

    @property
    def weights(self) -> npt.NDArray[np.float32]:
        """Sample weights, shape (n,), float32; mean 1 over the rows to learn from (train rows)."""
        weights: npt.NDArray[np.float32] = self._column(WEIGHT).to_numpy().astype(np.float32)
        return weights

    @property
    def split(self) -> npt.NDArray[np.str_]:
        """``train``, ``validation``, ``test`` or ``dropped`` for each row, shape (n,)."""
        return np.array(self._column(SPLIT).cast(pa.string()).to_pylist(), dtype=np.str_)

    def report(self, copy_to: str | Path | None = None) -> Path:
        """Draw the HTML report, unless it is there already, and return its path.

        Parameters
        ----------
        copy_to
            File to copy the report to. Without it the report lies in the output folder, which is removed
            with this object if it is temporary.

        """
        path = Path(self.recipe.output.path) / "reports" / f"{self.version}.html"
        if not path.exists():
            enabled = self.recipe.report.model_copy(update={"enabled": True})
            run(self.recipe.model_copy(update={"report": enabled}))
        return path if copy_to is None else Path(shutil.copy(path, copy_to))

    def _column(self, name: str) -> pa.ChunkedArray:
        return self.table.column(self.prefix + name)

    def _summary(self) -> str:
        groups, outliers = self._described(), self.manifest["summary"]["outliers"]
        clusters = "groups not described" if groups is None else count((groups.group != NOISE).sum(), "group")
        text = (
            f"{count(self.num_rows, 'row')}, {clusters}, {count(outliers, 'outlier')} "
            f"({outliers / max(self.num_rows, 1):.1%})."
        )
        if self.leaks:
            names = ", ".join(repr(leak.name) for leak in self.leaks)
            text += f" Likely leaks, each of which tells the label on its own: {names}."
        text += "".join(f" Warning: {warning}" for warning in self.manifest.get("warnings", ()))
        return text if groups is None else text + _worst_group(groups)

    def _described(self) -> pd.DataFrame | None:
        """Return ``groups``; None where the step that describes them failed, or its file is gone."""
        try:
            return self.groups
        except InputError:
            return None

    def __repr__(self) -> str:
        return f"Curated({self.version!r}): {self._summary()}"

    def _repr_html_(self) -> str:
        groups = self._described()
        if groups is None:
            return f"<p>{html.escape(self._summary())}</p>"
        shown = groups.assign(
            share=groups["share"].map("{:.1%}".format),
            accuracy=groups["accuracy"].map(lambda value: "" if np.isnan(value) else f"{value:.0%}"),
        )
        return f"<p>{html.escape(self._summary())}</p>{shown.to_html(index=False, border=0)}"


def _worst_group(groups: pd.DataFrame) -> str:
    """Return the sentence on the group on which the classifier is worst; empty if there is none to compare.

    As in the report, groups of few rows are compared as one.
    """
    known = groups.dropna(subset=["accuracy"])
    clusters = known[known["group"] != NOISE]
    rows = dict(clusters["rows"])
    compared = compare_groups(rows, dict(clusters["accuracy"] * clusters["rows"]))
    worst = worst_of(compared)
    if worst is None or len(compared) < 2:
        return ""
    member = clusters.loc[worst.members[0]]
    name = (
        f"the {len(worst.members)} groups with fewer than {MIN_ROWS} rows, taken together"
        if worst.pooled
        else f"group {member['group']} of class {member['class']}"
    )
    overall = float(np.average(known["accuracy"], weights=known["rows"]))
    return (
        f" The classifier is least accurate on {name}: {worst.accuracy:.0%} of {worst.rows:,} rows, against "
        f"{overall:.0%} of all rows."
    )


def curate(
    data: Any,
    *,
    label: str,
    features: Sequence[str] | None = None,
    truth: str | Mapping[str, str] | None = None,
    operators: Sequence[str] | Mapping[str, Mapping[str, Any] | None] | None = None,
    seed: int = 0,
    output: str | Path | None = None,
    source: Mapping[str, Any] | None = None,
    prefix: str = "",
    tracking: bool = False,
    verbose: bool = False,
) -> Curated:
    """Infer groups, mark outliers, and give every row of a table a weight and a split, in this process.

    Parameters
    ----------
    data
        A pandas or polars DataFrame, an Arrow table (or anything with the Arrow C stream interface), or the
        path of a dataset in any format that ``rowsieve sources`` lists.
    label
        Column with the class of each row.
    features
        Columns to learn from: numbers, booleans, texts, categories, dates and vectors. By default all of them
        but the label, the truth and names that begin with ``_``; identifiers and constants are left out.
    truth
        Column with the true group, or ``{"group": ..., "outlier": ...}``. It is used for scores in the report
        only; no method may read it.
    operators
        All operators to run: names, or a mapping from names to parameters as in a recipe. By default
        ``probe``, ``cues``, ``groups`` by cues, ``weights`` and ``split``. To change one of them, name all:
        ``{"cues": {"spurious": ["background"]}, "groups": {"method": "cues"}, "weights": {}, "split": {}}``.
    seed
        Seed of everything that is drawn. The same data and seed give the same result.
    output
        Local folder that keeps the versions, so that a later call reuses what was computed. By default a
        temporary folder, removed with the result.
    source
        Further keys of the recipe's section ``source``, such as ``{"on_error": "quarantine"}``; not those
        that are arguments here: path (``data``), label and features.
    prefix
        Text to put before the names of the published columns where the data have the same names.
    tracking
        Record the run on MLflow.
    verbose
        Show progress on standard error.

    Returns
    -------
    Curated
        The table with the published columns, the groups, weights, split, and the report.

    Raises
    ------
    InputError
        The data or an argument cannot be used; the message names the column or key and says what to do.

    Examples
    --------
    >>> import numpy as np, pandas as pd, rowsieve
    >>> rng = np.random.default_rng(0)
    >>> label = rng.integers(0, 2, 300)
    >>> cue = np.where(rng.random(300) < 0.85, label, 1 - label)  # agrees with the label for 85 % of rows
    >>> frame = pd.DataFrame({"cue": cue + rng.normal(0, 0.1, 300), "label": label})
    >>> curated = rowsieve.curate(frame, label="label")
    >>> list(curated.groups.columns)
    ['group', 'class', 'rows', 'share', 'accuracy', 'description']
    >>> curated.weights.shape, curated.weights.dtype
    ((300,), dtype('float32'))
    >>> np.unique(curated.split).tolist()
    ['train', 'validation']

    """
    if isinstance(data, str) and not data.strip():
        raise InputError("curate: data is an empty text. Give a table, or the path of a dataset.")
    features = features if features is None or isinstance(features, str) else tuple(features)
    _check_columns(label, features, source or {})
    temporary = tempfile.TemporaryDirectory(prefix="rowsieve-") if output is None else None
    folder = _folder_of(temporary.name if temporary else str(output))
    sections = {
        "seed": seed,
        "source": {
            **(source or {}),
            "label": label,
            **({} if features is None else {"features": features}),
        },
        "truth": {"group": truth} if isinstance(truth, str) else dict(truth or {}),
        **({} if operators is None else {"operators": _chain(operators)}),
        "output": {"path": str(folder), "prefix": prefix},
        "tracking": {"enabled": tracking},
    }
    recipe, in_memory = _recipe_of(sections), not isinstance(data, (str, Path))
    path = str(write_input(data, folder / "input") if in_memory else data)
    recipe = recipe.model_copy(update={"source": recipe.source.model_copy(update={"path": path})})
    try:
        _check_label(recipe)
        result = run(recipe, verbose=verbose)
    except RowsieveError as error:
        text = _with_faulty_rows(error, recipe) if temporary else str(error)
        text = with_whole_chain(
            with_arguments(without_recipe(text)), recipe.operators if operators is not None else None
        )
        raise type(error)(text.replace(path, "data") if in_memory else text) from error
    return Curated(recipe, temporary, result)


def _check_columns(label: Any, features: Any, source: Mapping[str, Any]) -> None:
    """Raise InputError for a label or features that are not names, and for arguments given in ``source``."""
    if isinstance(features, str):
        raise InputError(f"curate: features={features!r}: give a list of names, such as [{features!r}].")
    if not isinstance(label, str):
        raise InputError(f"curate: label={label!r}: give the name of a column, a text{_as_text(label)}.")
    for name in () if features is None else features:
        if not isinstance(name, str):
            raise InputError(f"curate: features: {name!r}: give names of columns, texts{_as_text(name)}.")
    for key in source:
        if argument := ARGUMENTS.get(key):
            raise InputError(
                f"curate: source={{{key!r}: ...}}: give it as the argument {argument}: {argument}=..."
            )


def _as_text(name: Any) -> str:
    """Return how to write a name that is a number, as columns of a pandas DataFrame may have it."""
    return f", such as {str(name)!r}" if isinstance(name, (int, np.integer)) else ""


def _folder_of(output: str) -> Path:
    """Return the absolute folder of an output. Raises InputError for a URI, a file and an empty text."""
    if not output.strip():
        raise InputError(
            "curate: output is an empty text. Name a folder; without `output`, the files are temporary."
        )
    if URI.match(output):
        raise InputError(
            f"curate: output={output!r}: curate writes to a local folder. Name one, or run a recipe, whose "
            f"output.path may be a URI: rowsieve.run."
        )
    folder = Path(os.path.expanduser(output)).resolve()
    lowest = next(place for place in (folder, *folder.parents) if place.exists())
    if not lowest.is_dir():
        raise InputError(f"curate: output={output!r}: {lowest} is a file. Name a folder.")
    return folder


def _recipe_of(sections: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a run in this process without a report. Raises InputError for a faulty argument.

    Its ``source.path`` is a placeholder, so that a faulty argument is found before any data are written.
    """
    fixed = {"name": "curate", "run": {"executor": "local"}, "report": {"enabled": False}}
    return Recipe.parse(
        {**fixed, **sections, "source": {**sections["source"], "path": "data"}}, place="curate"
    )


def _check_label(recipe: Recipe) -> None:
    """Raise InputError for a label that is a quantity, free text or an identifier."""
    if recipe.source.on_corrupt == "skip":  # the sample may lie in a shard that the run passes over
        return
    plan = make_plan(recipe)
    label = count_label(
        plan.source, plan.listing, recipe.source.label, draw_sample(plan.source, plan.listing)
    )
    for finding in check_labels(label, classes=recipe.source.classes):
        if finding.kind == "quantity" and finding.fatal:
            raise InputError(finding.text)


def _with_faulty_rows(error: RowsieveError, recipe: Recipe) -> str:
    """Return the message of an error, with the first quarantined rows in place of their file's name.

    The folder with the quarantine is removed before the user can open it.
    """
    text, files, _ = str(error).partition(" The rows and the reasons are in ")
    if not (isinstance(error, BudgetError) and files):
        return str(error)
    rows = read_quarantine(make_plan(recipe), SHOWN_ROWS).to_pylist()
    reasons = "; ".join(
        f"{row['file']}: row {row['row']}: column {row['column']!r} {row['error']}" for row in rows
    )
    return (
        f"{text} The first: {reasons}. Repair the rows, raise the rate, or give `output`, a folder that "
        f"keeps all of them with their reasons."
    )


def _chain(operators: Sequence[str] | Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return operators as a recipe's mapping from names to parameters."""
    if isinstance(operators, str):
        raise InputError(f"curate: operators={operators!r}: give a list of names, or a mapping.")
    if isinstance(operators, Mapping):
        return {name: dict(params or {}) for name, params in operators.items()}
    return {name: {} for name in operators}
