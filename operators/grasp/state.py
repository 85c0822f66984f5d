"""``selection.json``: the grid of every class and the cell that was picked in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

SELECTION = "selection.json"


def class_record(index: int, name: str, selection: Any) -> dict[str, Any]:
    """The selection of a class as plain values."""
    values = asdict(selection).items()
    plain = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in values}
    return {"class": index, "name": name, **plain}


def write_selection(
    state: Path, records: list[dict[str, Any]], projection: Mapping[str, Any] | None = None
) -> None:
    """Store the records of all classes, and how the gradients were projected, if they were."""
    record = {"classes": records, **({"projection": dict(projection)} if projection else {})}
    (state / SELECTION).write_text(json.dumps(record, indent=1), "utf-8")


def read_offsets(state: Path) -> dict[int, int]:
    """Class index -> number of its first group."""
    record = json.loads((state / SELECTION).read_text("utf-8"))
    return {entry["class"]: entry["offset"] for entry in record["classes"]}
