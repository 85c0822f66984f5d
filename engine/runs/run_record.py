"""The record of a published run, ``runs/<version>.json``: its outcome, and the steps after publishing.

A step is the work of one plugin on the published version: report, exports, training, tracking, cleanup. Its
status is `pending` until it is `done` or `failed`. Running the same command again does what is not done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Required

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from connectors.storage import Place
from engine.core.errors import Exit, InfeasibleError, RowsieveError, one_line, system_error
from engine.core.json_files import read_json, write_json
from engine.core.redaction import redact

PENDING, DONE, FAILED = "pending", "done", "failed"


@dataclass
class Step:
    """The work of one plugin after publishing."""

    name: str
    status: str = PENDING
    error: str = ""
    exit_code: int = 0
    at: float | None = None
    """Time at which the step ended, in seconds since the epoch."""


class _StoredStep(TypedDict, total=False):
    name: Required[str]
    status: Required[str]
    error: str


class _StoredTable(TypedDict, total=False):
    format: Required[str]
    path: Required[str]
    state: str
    error: str


class _Stored(TypedDict, total=False):
    steps: list[_StoredStep]
    exports: list[_StoredTable]
    failed_exports: list[_StoredTable]


_STORED = TypeAdapter(_Stored)
"""Form of the values of a record that readers go into; anybody may have changed it."""


def record_file(output: Place, version: str) -> Place:
    """Return the path of a version's run record."""
    return output / "runs" / f"{version}.json"


def write_record(output: Place, version: str, steps: Sequence[Step], **values: Any) -> None:
    """Write the record of a run. Readers see the old record or the whole new one."""
    record = {"version": version, **values, "steps": [asdict(step) for step in steps]}
    write_json(record_file(output, version), record, root=output)


def read_record(output: Place, version: str) -> dict[str, Any]:
    """Return the record of a version's run; empty if there is none that can be read."""
    try:
        found = read_json(record_file(output, version))
        _STORED.validate_python(found, strict=True)
    except (OSError, ValueError):
        return {}
    return dict(found)


def run_values(outcome: Mapping[str, Any], earlier: Mapping[str, Any], at: float) -> dict[str, Any]:
    """Return the values that a record keeps of the run that published the version, and of its repetition.

    Parameters
    ----------
    outcome
        ``seconds``, ``mlflow_run_id`` and ``parts_taken_over`` of the present run.
    earlier
        The record that the version had before this run; empty if this run published the version.
    at
        The present time, in seconds since the epoch.

    Returns
    -------
    The values of the run that published the version. If an earlier run did, the values of the present one
    follow as ``repetition``; an MLflow run is taken from it if the earlier run had none.

    """
    if not earlier:
        return dict(outcome)
    first = {name: earlier.get(name) for name in outcome}
    first = {name: outcome[name] if value is None else value for name, value in first.items()}
    return {**first, "repetition": {**outcome, "at": at}}


def dropped_exports(earlier: Mapping[str, Any], asked_for: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the failed exports of an earlier run to tables that the recipe no longer names.

    Parameters
    ----------
    earlier
        The record that the version had before this run.
    asked_for
        (format, path) of the tables that the recipe names now.

    """
    failed = [one for one in earlier.get("failed_exports") or () if isinstance(one, dict)]
    return [one for one in failed if (one.get("format"), one.get("path")) not in asked_for]


def unfinished_steps(output: Place, version: str) -> list[dict[str, Any]]:
    """Return the steps of a published version that failed or were interrupted, in their order."""
    try:
        return [step for step in read_record(output, version).get("steps", []) if step["status"] != DONE]
    except (TypeError, KeyError):
        return []


def mark_failed(step: Step, error: BaseException) -> None:
    """Record why a step failed."""
    known = error if isinstance(error, RowsieveError) else None
    step.status, step.at = FAILED, time.time()
    step.exit_code = int(known.exit_code if known else Exit.CRASH)
    step.error = redact(str(error) if known else f"{type(error).__name__}: {error}")


def as_known(error: Exception) -> Exception:
    """Return an error of the operating system or of MLflow as one with a remedy, any other as it is."""
    if type(error).__module__ == "mlflow.exceptions":
        return InfeasibleError(
            f"MLflow does not answer, or refuses: {one_line(error)}. Start it, or correct MLFLOW_TRACKING_URI"
        )
    return system_error(error) if isinstance(error, OSError) else error


def step_error(version: str, failed: Sequence[Step], errors: Sequence[Exception]) -> RowsieveError:
    """Return the error that ends a run whose version is published and whose steps failed.

    It has the type, and so the exit code, of the first error that has one.
    """
    reasons = " ".join(f"{step.name} failed: {step.error.rstrip('.')}." for step in failed)
    kinds = [type(error) for error in errors if isinstance(error, RowsieveError)]
    kind = kinds[0] if kinds else RowsieveError
    return kind(
        f"The version {version} is published and current, but steps after publishing failed. {reasons} "
        f"Run the same command again to repeat them."
    )
