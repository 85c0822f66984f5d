"""What a run leaves, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from connectors.storage import Place
from engine.publish.export import Exported


@dataclass(frozen=True)
class OperatorResult:
    """What one operator did in a run."""

    name: str
    computed: int
    reused: int
    seconds: float
    metrics: dict[str, float] = field(default_factory=dict)
    rows_per_worker_second: float = 0.0
    """Rows per second of one actor while it worked; 0 where nothing was computed."""


@dataclass(frozen=True)
class RunResult:
    """What a run leaves."""

    version: str
    path: Place
    reused: bool
    """Whether everything had been computed and published before."""
    operators: tuple[OperatorResult, ...]
    manifest: dict[str, Any]
    report: Place | None
    mlflow_run_id: str | None
    seconds: float
    exports: tuple[Exported, ...] = ()
    """What came of ``output.export``, table by table."""
    training: dict[str, Any] | None = None
    """What came of the recipe's section ``train``."""
    parts_taken_over: int = 0
    """Parts of the version that this run did not write, as the base version has the same."""
