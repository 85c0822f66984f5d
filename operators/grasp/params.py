"""Parameters of the ``groups`` operator."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from operators.base import OperatorParams, Resources
from operators.grasp.selection import EPS_GRID, MIN_SAMPLES_GRID, Rule

Eps: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
MinSamples: TypeAlias = Annotated[int, Field(ge=1)]


class GroupsParams(OperatorParams):
    """Parameters of GRASP: the comparison of rows within a class, and the settings of DBSCAN to try."""

    method: Literal["grasp", "feasp"] = "grasp"
    """``grasp`` clusters gradients; ``feasp``, its ablation, the features ``x`` in the same way."""
    metric: Literal["centered_cosine", "cosine", "euclidean"] = "centered_cosine"
    """``centered_cosine`` compares directions after the class mean is subtracted, ``cosine`` directions as
    they are, ``euclidean`` the gradients themselves."""
    eps: Eps | Annotated[list[Eps], Field(min_length=1)] = Field(default=[*EPS_GRID])
    """Radius, or radii to choose from, in units of 1 - cos (0 to 2). With ``euclidean`` in the unit of the
    gradients: the default grid is not scaled to them, so give your own."""
    min_samples: MinSamples | Annotated[list[MinSamples], Field(min_length=1)] = Field(
        default=[*MIN_SAMPLES_GRID]
    )
    """Rows within eps (the row itself included) that make a core sample, or several to choose from."""
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
    fit_rows: Annotated[int, Field(ge=100)] | None = None
    """A class of more rows is clustered on so many of them, drawn by the seed; then every row of it is placed
    as new rows are, with the nearest core sample if within eps. Work then grows with the rows, no longer with
    their square. Default: all rows are clustered."""
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
