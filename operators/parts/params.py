"""Parameters of ``parts``; the engine fills them from ``source.holdout`` and ``operators.split``."""

from __future__ import annotations

from typing import ClassVar

from operators.base import OperatorParams, Resources


class HoldoutParams(OperatorParams):
    """Rows held out by ``source.holdout``."""

    share: float
    """Share of the rows that become test rows."""
    validation: float = 0.0
    """Share of the rows that become validation rows."""
    key: str | None = None
    """Column that identifies a row; None: the bytes of its file and its position there."""


class DrawParams(OperatorParams):
    """Validation and test rows of ``split: {method: random}``."""

    validation: float
    """Share of the rows that become validation rows."""
    test: float
    """Share of the rows that become test rows."""
    key: str | None = None
    """Column that identifies a row; None: the values of the features."""


class PartsParams(OperatorParams):
    """Shares of the rows that are held out from every ``fit``."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})

    label: str
    """Column with the class of each row."""
    features: tuple[str, ...]
    """Source columns whose values identify a row."""
    holdout: HoldoutParams | None = None
    """Rows that ``source.holdout`` takes; they are taken first."""
    draw: DrawParams | None = None
    """Rows that become validation and test rows, of all others."""
    resources: Resources = Resources()
    """Resources of the work on one shard."""
