"""Parameters of ``groups: {method: grasp}``, and of ``feasp``, which clusters features in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources
from operators.grasp.selection import EPS_GRID, FIT_ROWS, MIN_SAMPLES_GRID, Rule
from operators.groups.small_groups import MIN_ROWS, MIN_SHARE

Eps: TypeAlias = Annotated[float, Field(gt=0)]
MinSamples: TypeAlias = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0, lt=1)]

GRASP_PAPER: Mapping[str, Any] = MappingProxyType(
    {
        "min_samples": list(MIN_SAMPLES_GRID),
        "select": "silhouette",
        "min_rows": 0,
        "min_share": 0.0,
        "fit_rows": None,
        "stability": 0,
    }
)
"""GRASP as published (Zeng et al. 2022, appendix E), as far as it differs from the defaults here."""


class GroupsParams(OperatorParams):
    """Parameters of GRASP: how rows of a class are compared, and the grid of settings of DBSCAN."""

    method: Literal["grasp", "feasp"] = "grasp"
    """``grasp`` clusters gradients; ``feasp``, its ablation, the features ``x`` in the same way."""
    preset: Literal["grasp_paper"] | None = None
    """``grasp_paper``: the paper's grid in rows, its rule of selection, every cluster a group, all rows
    clustered. Parameters that are given beside it have precedence. For the paper's gradients too, set
    ``gradients: {bias: plain}``.
    """
    metric: Literal["centered_cosine", "cosine", "euclidean"] = "centered_cosine"
    """``centered_cosine`` compares directions after the class mean is subtracted, ``cosine`` directions as
    they are, ``euclidean`` the gradients themselves."""
    eps: Eps | Annotated[list[Eps], Field(min_length=1)] = Field(default=[*EPS_GRID])
    """Radius, or radii to choose from, in units of 1 - cos (0 to 2). With ``euclidean`` in the unit of the
    gradients: the default grid is not scaled to them, so give your own."""
    min_samples: Literal["auto"] | MinSamples | Annotated[list[MinSamples], Field(min_length=1)] = "auto"
    """Rows within eps (the row itself included) that make a core sample, or several to choose from: whole
    numbers, or shares of the class below 1. ``auto``: the paper's grid of 5 to 100 for a class of up to 1,000
    rows, scaled in proportion for a larger one (.5 to 10 % of it)."""
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Smallest number of rows of a group. Smaller clusters join the group whose core samples are nearest,
    until none is too small. 0: every cluster is a group, as published (with ``min_share: 0``).
    """
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Smallest share of its class in a group; see ``min_rows``."""
    select: Rule = "coverage"
    """Rule that selects one cell of the grid for each class. ``coverage``: the largest silhouette x
    squared share of rows in a group, among cells with two groups and at most 10 % noise. ``silhouette``,
    the paper's rule: the largest mean silhouette, with noise as one cluster; it tends to put the minority
    into the noise.
    """
    outliers: Literal["noise", "none"] = "noise"
    """``noise``: rows in no cluster are marked as outliers. ``none``: they have the group -1 and no mark;
    if the minority is rare, noise is often the minority itself.
    """
    neighbours: Literal["exact", "ivf", "hnsw", "auto"] = "exact"
    """The way in which DBSCAN finds neighbours. ``exact``: by comparing rows, skipping most pairs. ``ivf``,
    ``hnsw``: one approximate FAISS graph per class, built by one worker; small groups may be lost, and
    ``selection.json`` and the report have the difference from exact groups. ``auto``: ``exact``, which was
    faster on all data tried.
    """
    nprobe: Annotated[int, Field(ge=1)] = 16
    """IVF lists that are searched per row; more lists find more neighbours and take longer."""
    ef_search: Annotated[int, Field(ge=1)] = 128
    """HNSW candidates that are kept per row; more candidates find more neighbours and take longer."""
    fit_rows: Literal["auto"] | Annotated[int, Field(ge=100)] | None = "auto"
    """A class of more rows is clustered on this many of them, drawn by hashes of row ids. All of its rows
    then join the group of the nearest core sample if it lies within eps, so that the work grows with the
    number of rows, not with its square. ``auto``: 10,000 with exact neighbours, else all. null: all rows
    are clustered.
    """
    stability: Annotated[int, Field(ge=0, le=20)] = 2
    """Number of times that a class is clustered again on 80 % of its clustered rows (at most 5,000), to
    report the adjusted Rand index with its groups. 0: not measured."""
    keep_grid: Literal["auto"] | bool = "auto"
    """Whether to store the labels of every setting (2 bytes per row and setting before compression), so
    that the report can map their adjusted Rand index if the recipe names the truth. ``auto``: in classes
    of at most 250,000 rows.
    """
    block_rows: Annotated[int, Field(ge=1)] = 65_536
    """A class of more rows is clustered in blocks of this many, by many workers; a smaller class by one
    worker that holds all of it. The results are the same.
    """
    resources: Resources = Resources()
    """Resources of a worker, which holds the rows of one class or block."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources", "block_rows"})

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, values: Any) -> Any:
        """Take the values of the preset for keys that are not given."""
        if isinstance(values, Mapping) and values.get("preset") == "grasp_paper":
            return {**GRASP_PAPER, **values}
        return values

    def rows_to_fit(self) -> int | None:
        """Return the largest number of rows of a class that are clustered; None for all."""
        if self.fit_rows != "auto":
            return self.fit_rows
        return None if self.neighbours in ("ivf", "hnsw") else FIT_ROWS
