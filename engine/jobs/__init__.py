"""Runs as jobs of a Ray cluster: ``engine.submit(recipe, address)`` -> handle: status, logs, cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.lazy import lazy

if TYPE_CHECKING:
    from engine.jobs.handle import JobHandle, attach, list_jobs
    from engine.jobs.submission import Submission, submit

__all__ = ["JobHandle", "Submission", "attach", "list_jobs", "submit"]
_DEFINED_IN = {
    "JobHandle": "handle",
    "Submission": "submission",
    "attach": "handle",
    "list_jobs": "handle",
    "submit": "submission",
}

__getattr__ = lazy(__name__, _DEFINED_IN)
