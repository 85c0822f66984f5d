"""Parameters of the methods of ``groups``; those of GRASP and FeaSP are in :mod:`operators.grasp.params`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from operators.base import OperatorParams, Resources
from operators.groups.small_groups import MIN_ROWS, MIN_SHARE
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
    """Smallest number of rows of a group. Smaller ones join the group with the nearest centre, until none
    is too small. 0: groups as the method finds them (with ``min_share: 0``).
    """
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Smallest share of its class in a group; see ``min_rows``."""
    resources: Resources = Resources()
    """Resources of the worker that holds the vectors of one class."""


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
    """Smallest share of the class in a group; see ``min_rows``."""
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Smallest number of rows of a group. A smaller over-cluster does not become a group, and a smaller
    cluster joins the one with the nearest centre, until none is too small.
    """
    n_init: Count = 3
    """Starts of each mixture."""
    silhouette_rows: Annotated[int, Field(ge=3)] = 10_000
    """Rows of a class drawn for the silhouettes, which take the square of their number."""
    resources: Resources = Resources()
    """Resources of the worker that holds the features of one class."""


class EiilParams(OperatorParams):
    """Two environments that violate the probe's invariance most."""

    method: Literal["eiil"] = "eiil"
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Smallest number of rows of a group. A class of which either part has fewer is one group. 0 (with
    ``min_share: 0``): every class is split."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Smallest share of its class in a group; see ``min_rows``."""
    resources: Resources = Resources()


class JttParams(ProbeParams):
    """The model whose errors are the minority group. It is stopped early, after ``epochs``."""

    solves_logistic: ClassVar[bool] = False

    method: Literal["jtt"] = "jtt"
    l2: float = Field(default=0.0, ge=0)
    """Adds l2/2 ||W||^2 to the mean loss."""
    epochs: int = Field(default=50, ge=1)
    """Passes of Adam, for ``logistic`` too. The paper tunes it on validation groups, from 1 to 60."""
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Smallest number of rows of a group. A class of which either part has fewer is one group. 0 (with
    ``min_share: 0``): every class is split."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Smallest share of its class in a group; see ``min_rows``."""


class CueGroupsParams(OperatorParams):
    """Groups by the shortcut that ``cues`` suspects or that the user names."""

    method: Literal["cues"] = "cues"
    min_rows: Annotated[int, Field(ge=0)] = MIN_ROWS
    """Smallest number of rows of a group; a smaller one is merged with the rest of its class."""
    min_share: Annotated[float, Field(ge=0, le=0.5)] = MIN_SHARE
    """Smallest share of its class in a group."""


class NoneParams(OperatorParams):
    """Takes the class as group."""

    method: Literal["none"] = "none"


class OracleParams(OperatorParams):
    """Takes a source column with the true groups as group."""

    method: Literal["oracle"] = "oracle"
    column: str
    """The column; the one column under ``truth`` that this operator may read."""
