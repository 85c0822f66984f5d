"""Parameters of ``parts``; the engine fills them from ``source.holdout`` and ``operators.split``."""

from __future__ import annotations

from typing import ClassVar

from operators.base import OperatorParams, Resources


class HoldoutParams(OperatorParams):
    """Rows held out by ``source.holdout``."""

    share: float
    validation: float = 0.0
    key: str | None = None


class DrawParams(OperatorParams):
    """Validation and test rows of ``split: {method: random}``."""

    validation: float
    test: float
    key: str | None = None


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
