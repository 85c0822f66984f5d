"""Results of a run and of its operators, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from connectors.storage import Place
from engine.publish.export import ExportResult
from operators.leaks import Leak


@dataclass(frozen=True)
class OperatorResult:
    """The work of one operator in a run."""

    name: str
    computed: int
    reused: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    rows_per_worker_second: float = 0.0
    """Rows per second of one worker while it computed; 0 if nothing was computed."""


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The published version of a run, with its report, exports and training."""

    version: str
    path: Place
    reused: bool
    """Whether the version had been published before, so that nothing was computed."""
    operators: tuple[OperatorResult, ...]
    manifest: dict[str, Any]
    report: Place | None
    mlflow_run_id: str | None
    seconds: float
    exports: tuple[ExportResult, ...] = ()
    """The exports of ``output.export``, one for each table."""
    training: dict[str, Any] | None = None
    """The record of the recipe's section ``train``; None without that section."""
    parts_taken_over: int = 0
    """The number of parts that were taken over from the base version."""
    leaks: tuple[Leak, ...] = ()
    """Columns that alone predict the label in a sample of the source."""
