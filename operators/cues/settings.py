"""Settings of the robust weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Setting = Literal["safe", "bold"]


@dataclass(frozen=True)
class Named:
    """Shortcut that the user names: a source column, or a slice of one.

    Attributes
    ----------
    columns
        One column, or all one-hot columns of a category.
    cut
        For one column: rows above it, in the feature's own unit, are one side. Default: found.
    one_of
        The columns are several features of one source column, such as the parts of a date; the one on which
        held-out class-balanced models lean most counts.

    """

    columns: tuple[int, ...]
    cut: float | None = None
    one_of: bool = False


@dataclass(frozen=True)
class SourceColumn:
    """A source column as positions of features.

    Attributes
    ----------
    features
        Positions of all features of the column.
    shares
        Positions of those that hold shares of classes, which ``encode`` counts from labels.

    """

    features: tuple[int, ...]
    shares: tuple[int, ...] = ()


@dataclass(frozen=True)
class CueSettings:
    """Settings of the robust weights; the defaults are the safe ones.

    Attributes
    ----------
    setting
        "safe" or "bold".
    spurious
        Shortcuts that the user names.
    legitimate
        Columns that are honest signal.
    columns
        Source columns of the features, whose other columns have to support a shortcut in one of them; a
        feature of none is a column of its own.
    cap
        Largest weight relative to class balance.
    min_effective
        Least effective sample size of each class, as a share of its rows; .2 where less makes the worst group
        on held-out rows worse (``robust_weights.MEASURED_SHARE``).
    named_share
        Part of the weight that balances a named shortcut; the rest is class balance. All of it would give the
        wrong labels among the rows that break the shortcut as much weight as the others there, and is taken
        where the worst group on held-out rows is clearly better, or the evidence of the search is that full.
    searched_share
        Part of the robust factor that the search has beside the names, where its evidence is full.
    max_named_cost
        Largest loss of held-out balanced accuracy, and C / 2 of it that of the worst of C
        classes; the part is two thirds, a third or a sixth of ``named_share``, or 0, where they are exceeded.
        At 1 nothing is too much.
    only_if_better
        Whether names are followed only if the worst group is better for it on held-out rows: those that the
        user has not given.
    l2
        Ridge penalty of the probe.
    max_rows
        Rows of the sample; more are drawn down by a hash of their ids.
    seed
        Decides sample, halves and flips.

    """

    setting: Setting = "safe"
    spurious: Sequence[Named] = ()
    legitimate: frozenset[int] = frozenset()
    columns: Sequence[SourceColumn] = ()
    cap: float = 20.0
    min_effective: float = 0.1
    named_share: float = 0.85
    searched_share: float = 0.5
    max_named_cost: float = 1.0
    only_if_better: bool = False
    l2: float = 1e-3
    max_rows: int = 50_000
    seed: int = 0
