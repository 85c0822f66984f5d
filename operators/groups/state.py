"""Files in which a method keeps what it found: ``groups.json``, and arrays for each class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from operators.base import OperatorParams
from operators.groups.kernel import State

RECORD = "groups.json"


def write_record(state: Path, params: OperatorParams, **values: Any) -> None:
    """Store the parameters, method among them, and what else is to be remembered."""
    record = {"params": params.model_dump(mode="json", exclude=set(params.execution_only)), **values}
    (state / RECORD).write_text(json.dumps(record, indent=1), "utf-8")


def read_record(state: Path) -> dict[str, Any]:
    """What :func:`write_record` stored."""
    record: dict[str, Any] = json.loads((state / RECORD).read_text("utf-8"))
    return record


def write_arrays(state: Path, index: int, arrays: State) -> None:
    """Store the state of a class."""
    # Through a dict of its own: savez takes names as keyword arguments.
    np.savez(state / f"model-{index}.npz", **{name: np.asarray(value) for name, value in arrays.items()})  # type: ignore[arg-type]


def read_arrays(state: Path, index: int) -> State:
    """What :func:`write_arrays` stored; nothing is ever unpickled."""
    with np.load(state / f"model-{index}.npz", allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def class_names(ingest: Path) -> list[str]:
    """Names of the classes, by class index."""
    classes = json.loads((ingest / "classes.json").read_text("utf-8"))["classes"]
    return [str(value) for value in classes]
