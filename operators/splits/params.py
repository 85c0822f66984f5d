"""Parameters of the operator ``split``: one class for each method."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources

Share = Annotated[float, Field(ge=0, lt=1)]


class SplitParams(OperatorParams):
    """Parameters of all methods: the sizes, and the kernel in which the shift (MMD) is measured."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})

    validation: Share = 0.2
    """Share of rows for validation."""
    test: Share = 0.0
    """Share of rows for test, drawn at random before anything else."""
    drop_outliers: bool = False
    """Leave out rows marked as outliers; look at them and at the estimated precision first."""
    kernel: Literal["linear", "rbf"] = "linear"
    """Kernel of the features ``x``; compare methods by their metric ``mmd`` in the same kernel."""
    gamma: Annotated[float, Field(gt=0)] | None = None
    """Parameter gamma of ``rbf``; default: 1 / median squared distance."""
    landmarks: Annotated[int, Field(ge=1, le=5000)] = 500
    """Number of landmarks in the approximation of ``rbf``."""
    landmarks_by: Literal["uniform", "kmeans", "density"] = "uniform"
    """The choice of landmarks from 5,000 sampled rows; ``density``: from all rows, evenly over the space, by
    the graph of the operator ``neighbours`` (with ``space: x``)."""
    standardize: bool = True
    """Centre and scale every feature before the kernel."""
    resources: Resources = Resources()
    """Resources of the work on one shard."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation ({self.validation}) and test ({self.test}) leave nothing to train on: "
                f"their sum must be below 1"
            )
        given = sorted({"gamma", "landmarks", "landmarks_by"}.intersection(self.model_fields_set))
        if self.kernel == "linear" and given:
            raise ValueError(f"{given[0]} is read by kernel: rbf only; kernel is 'linear'")
        return self


class RandomParams(SplitParams):
    """Rows by a hash of seed and content, or of seed and a key."""

    method: Literal["random"] = "random"
    fit_on: Literal["train", "all"] | None = None
    """Rows that operators learn from. ``train``: a row's part is drawn from what the source holds before
    anything is fitted, so that no feature, group, weight or outlier mark has learnt from a validation or test
    row; these rows are placed as new rows are. Two things are decided by all rows: whether the texts of a
    column are all numbers or dates, and of what kind it is if they are not; and what the classes are.
    Shares are then those of the hash, not exact in any class, and classes with fewer than 20 rows are
    training rows.
    ``all``: scores on validation and test rows are optimistic. Default: ``train``, or ``all`` beside an
    operator that cannot place rows and where ``stratify_by_group: true`` is written out; plan and report
    say which."""
    stratify_by_group: bool = True
    """Take these shares of every group and every class's noise. Only ``fit_on: all`` reads it."""
    key: str | None = None
    """Source column whose value decides, such as a customer's number: rows with one value are in one part and
    stay there whatever else changes. Shares are then those of the keys, not exact in any group; rows
    without a value are drawn by their content. Default: the content of a row decides, so that it stays in its
    part when files are added, moved or cut otherwise. With ``fit_on: all`` its content is its features, and
    shares are exact in every stratum: a few rows at the border of a stratum may move, and other features or
    another encoder draw all rows anew. Equal rows are then numbered within their shard, so that their parts
    depend on the cut."""

    @model_validator(mode="after")
    def _key_is_not_stratified(self) -> Self:
        if self.key is not None and "stratify_by_group" in self.model_fields_set and self.stratify_by_group:
            raise ValueError("stratify_by_group is not read beside key: rows of one key stay together")
        if self.fit_on == "train" and self.asks_for_strata:
            raise ValueError(
                "stratify_by_group draws within groups, which are learnt first: set fit_on to all, or leave "
                "stratify_by_group out"
            )
        return self

    @property
    def asks_for_strata(self) -> bool:
        """Return whether the recipe itself asks for shares within groups."""
        return "stratify_by_group" in self.model_fields_set and self.stratify_by_group


class ClusterParams(SplitParams):
    """Validation rows as far from training rows as can be, by constrained kernel k-means."""

    method: Literal["cluster"] = "cluster"
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of rows for validation."""
    within: Literal["label", "domain"] = "label"
    """Strata that keep their share: every label, or every pair of label and domain (rows in no domain are
    one)."""
    domain: str = "group"
    """Source column with the domain of each row; ``group``: the inferred groups."""
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    """tau: a label or group may give (1 - tau) to (1 + tau) times its share."""
    n_init: Annotated[int, Field(ge=1)] = 10
    """Starts, on 5,000 sampled rows; the best goes on with all rows."""
    max_iter: Annotated[int, Field(ge=1)] = 50
    """Most steps of a start, and with all rows."""
    folds: Annotated[int, Field(ge=2, le=1000)] | None = None
    """Folds for cross-validation instead of one validation part: adds the column ``fold``, 0 to folds - 1 (-1
    for test and dropped rows). Each fold takes 1 / folds of every label, exactly up to 5,000 rows and on
    average beyond; fold 0 is validation. Folds times rows, of
    which at most 5,000 count, must not exceed 1,000,000."""
    marginals: tuple[str, str] | None = None
    """Two columns, of the source or ``group``, each value of which gives its share of validation rows, while
    their pairs need not; exactly up to 5,000 rows and on average beyond. Instead of ``within``."""

    @model_validator(mode="after")
    def _reads_programs(self) -> Self:
        given = self.model_fields_set
        for key, unread in (
            ("folds", {"validation", "tolerance", "landmarks_by", "marginals"}),
            ("marginals", {"within", "domain"}),
        ):
            if getattr(self, key) is not None and (clash := sorted(unread & given)):
                raise ValueError(f"{clash[0]} is not read beside {key}: leave one of them out")
        return self

    @model_validator(mode="after")
    def _two_marginals(self) -> Self:
        if self.marginals is not None and self.marginals[0] == self.marginals[1]:
            raise ValueError(
                f"marginals names {self.marginals[0]!r} twice: name two columns, or use within for one"
            )
        return self

    @model_validator(mode="after")
    def _reads_domain(self) -> Self:
        if self.within == "label" and "domain" in self.model_fields_set:
            raise ValueError("domain is read by within: domain only; within is 'label'")
        return self


class DomainParams(SplitParams):
    """All rows of one domain for validation; ``validation`` only says which, where ``leave_out`` does not."""

    method: Literal["leave_one_domain_out"] = "leave_one_domain_out"
    domain: str = "group"
    """Source column with the domain of each row; ``group``: the inferred groups."""
    leave_out: str | None = None
    """The domain, as text; default: the one whose size is nearest to the share ``validation`` of
    all rows, test rows included."""
