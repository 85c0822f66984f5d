"""Parameters of the methods of ``groups``; those of GRASP and FeaSP are in :mod:`operators.grasp.params`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from operators.base import OperatorParams, Resources
from operators.groups.merging import MIN_ROWS, MIN_SHARE
from operators.probe.params import ProbeParams

Count: TypeAlias = Annotated[int, Field(ge=1)]
Counts: TypeAlias = Count | Annotated[list[Count], Field(min_length=1)]


class KMeansParams(OperatorParams):
    """Euclidean k-means within each class."""

    method: Literal["kmeans"] = "kmeans"
    space: Literal["gradients", "features"] = "gradients"
    """Vectors that are clustered: gradients, or the features ``x``."""
    k: Counts = Field(default=[2, 3, 4, 5, 6, 7, 8])
    """Groups per class; of several, the one with the largest mean silhouette."""
    n_init: Count = 10
    """Starts (k-means++); the lowest sum of squares is kept."""
    silhouette_rows: Annotated[int, Field(ge=3)] = 10_000
    """Rows of a class drawn for the silhouette, which takes the square of their number."""
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Least rows of a group. A smaller one joins the group with the nearest centre, again until none is too
    small; 0: groups as the method finds them (with ``min_share: 0``)."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Least share of its class in a group, as ``min_rows``."""
    resources: Resources = Resources()
    """Of the worker that holds one class's vectors."""


class GeorgeParams(OperatorParams):
    """Gaussian mixtures over features and loss within each class, over-clustered."""

    method: Literal["george"] = "george"
    k: Counts = Field(default=[2, 3, 4, 5, 6, 7, 8, 9, 10])
    """Clusters of the first mixture; of several, the one with the largest mean silhouette."""
    overcluster: Counts = Field(default=[1, 2, 5, 10])
    """Components of the second mixture per cluster; of several, the largest silhouette again. 1: none."""
    components: Count = 10
    """Principal components of the features that are kept."""
    min_share: Annotated[float, Field(ge=0, le=1)] = MIN_SHARE
    """Least share of the class in a group, as ``min_rows``."""
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Least rows of a group: an over-cluster with fewer does not become one, and a cluster with fewer joins
    the one with the nearest centre, again until none is too small."""
    n_init: Count = 3
    """Starts of each mixture."""
    silhouette_rows: Annotated[int, Field(ge=3)] = 10_000
    """Rows of a class drawn for the silhouettes, which take the square of their number."""
    resources: Resources = Resources()
    """Of the worker that holds one class's features."""


class EiilParams(OperatorParams):
    """Two environments that violate the probe's invariance most; nothing to choose."""

    method: Literal["eiil"] = "eiil"
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Least rows of a group. A class of which either part has fewer is one group; 0 (with
    ``min_share: 0``): every class is split."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Least share of its class in a group, as ``min_rows``."""
    resources: Resources = Resources()


class JttParams(ProbeParams):
    """The model whose errors make the minority; stopped early, so ``epochs`` decides."""

    solves_logistic: ClassVar[bool] = False

    method: Literal["jtt"] = "jtt"
    l2: float = Field(default=0.0, ge=0)
    """Adds l2/2 ||W||^2 to the mean loss."""
    epochs: int = Field(default=50, ge=1)
    """Passes of Adam, for ``logistic`` too. The paper tunes it on validation groups, from 1 to 60."""
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Least rows of a group. A class of which either part has fewer is one group; 0 (with
    ``min_share: 0``): every class is split."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Least share of its class in a group, as ``min_rows``."""


class CueGroupsParams(OperatorParams):
    """Groups by the shortcut that ``cues`` suspects or that the user names."""

    method: Literal["cues"] = "cues"
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Least rows of a group; a smaller one is merged with the rest of its class."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Least share of its class in a group."""


class NoneParams(OperatorParams):
    """Group = class: the floor."""

    method: Literal["none"] = "none"


class OracleParams(OperatorParams):
    """Group = a column of the source that holds the truth."""

    method: Literal["oracle"] = "oracle"
    column: str
    """The column; the one column under ``truth`` that this operator may read."""
