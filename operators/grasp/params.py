"""Parameters of the ``groups`` operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources
from operators.grasp.selection import EPS_GRID, FIT_ROWS, MIN_SAMPLES_GRID, Rule
from operators.groups.merging import MIN_ROWS, MIN_SHARE

Eps: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
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
    """Parameters of GRASP: the comparison of rows within a class, and the settings of DBSCAN to try."""

    method: Literal["grasp", "feasp"] = "grasp"
    """``grasp`` clusters gradients; ``feasp``, its ablation, the features ``x`` in the same way."""
    preset: Literal["grasp_paper"] | None = None
    """``grasp_paper``: the paper's grid in rows, its rule of selection, every cluster a group, all rows
    clustered. For its gradients too set `gradients: {bias: plain}`. What is given beside it stands."""
    metric: Literal["centered_cosine", "cosine", "euclidean"] = "centered_cosine"
    """``centered_cosine`` compares directions after the class mean is subtracted, ``cosine`` directions as
    they are, ``euclidean`` the gradients themselves."""
    eps: Eps | Annotated[list[Eps], Field(min_length=1)] = Field(default=[*EPS_GRID])
    """Radius, or radii to choose from, in units of 1 - cos (0 to 2). With ``euclidean`` in the unit of the
    gradients: the default grid is not scaled to them, so give your own."""
    min_samples: Literal["auto"] | MinSamples | Annotated[list[MinSamples], Field(min_length=1)] = "auto"
    """Rows within eps (the row itself included) that make a core sample, or several to choose from: whole
    numbers, or shares of the class below 1. ``auto``: the paper's grid of 5 to 100 for a class of up to
    1,000 rows, in proportion for a larger one (.5 to 10 % of it): density means the same at any size."""
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Least rows of a group. A smaller one joins the group whose core samples are nearest, again until none
    is too small; 0: every cluster is a group, as published (with ``min_share: 0``)."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Least share of its class in a group, as ``min_rows``."""
    select: Rule = "coverage"
    """How one cell of the grid is picked per class. ``coverage``: the largest silhouette x squared share of
    rows in a group, among cells with two groups and at most 10 % noise. ``silhouette``, the paper's: the
    largest mean silhouette, noise as one cluster; it tends to put the minority into the noise."""
    outliers: Literal["noise", "none"] = "noise"
    """``noise``: rows in no cluster count as outliers. ``none``: they keep group -1 and are not judged;
    where the minority is rare, noise is often the minority itself."""
    neighbours: Literal["exact", "ivf", "hnsw", "auto"] = "exact"
    """How DBSCAN finds neighbours. ``exact``: by comparing rows, skipping most pairs. ``ivf``, ``hnsw``: one
    approximate FAISS graph per class, built by one worker; small groups may be lost, and selection.json and
    the report say how far the groups are from the exact ones. ``auto``: ``exact``, which was faster on
    all data tried."""
    nprobe: Annotated[int, Field(ge=1)] = 16
    """IVF lists looked at per row; more find more, and take longer."""
    ef_search: Annotated[int, Field(ge=1)] = 128
    """HNSW candidates kept per row; more find more, and take longer."""
    fit_rows: Literal["auto"] | Annotated[int, Field(ge=100)] | None = "auto"
    """A class of more rows is clustered on so many of them, drawn by hashes of row ids; then every row
    of it is placed as new rows are, with the nearest core sample if within eps. Work then grows with the
    rows, not with their square. ``auto``: 10,000 with exact neighbours, else all. null: all rows are
    clustered."""
    stability: Annotated[int, Field(ge=0, le=20)] = 2
    """How often a class is clustered anew on 80 % of its clustered rows (at most 5,000), to report the
    adjusted Rand index with its groups; 0: not measured."""
    keep_grid: Literal["auto"] | bool = "auto"
    """Keep the labels of every setting that was tried, so that the report can map their ARI where the recipe
    names the truth: 2 bytes a row and setting before compression. ``auto``: in classes of at most 250,000
    rows."""
    block_rows: Annotated[int, Field(ge=1)] = 65_536
    """A class of more rows is clustered in blocks of so many, by many workers; one of fewer by one worker
    that holds all of it. The results are the same."""
    resources: Resources = Resources()
    """Resources of a worker, which holds the rows of one class or block."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources", "block_rows"})

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, values: Any) -> Any:
        """Take the values of the preset for what is not given."""
        if isinstance(values, Mapping) and values.get("preset") == "grasp_paper":
            return {**GRASP_PAPER, **values}
        return values

    def rows_to_fit(self) -> int | None:
        """Return the rows of a class that are clustered at most; None for all."""
        if self.fit_rows != "auto":
            return self.fit_rows
        return None if self.neighbours in ("ivf", "hnsw") else FIT_ROWS
