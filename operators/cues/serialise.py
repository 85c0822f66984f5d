"""The fitted state as a folder: ``cues.json`` with the structure and ``cues.npz`` with the arrays.

Equal states give equal bytes, reading gives the same bits, and nothing is unpickled.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.bounded_json import read_json
from operators.cues.limits import Limits
from operators.cues.models.linear import Scaler
from operators.cues.models.trade_off import TradeOffPoint
from operators.cues.models.twins import Twins
from operators.cues.search.evidence import Evidence
from operators.cues.search.slices import Slices
from operators.cues.sides.right_labels import RightLabels
from operators.cues.sides.sides import Sides
from operators.cues.state import CueState

STRUCTURE, ARRAYS = "cues.json", "cues.npz"
TYPES: dict[str, type] = {
    "State": CueState,
    "Scaler": Scaler,
    "Twins": Twins,
    "Slices": Slices,
    "Sides": Sides,
    "Limits": Limits,
    "Evidence": Evidence,
    "Point": TradeOffPoint,
    "RightLabels": RightLabels,
}
"""Class of each ``type`` in the file. The names on the left are part of the format and stay if a class is
renamed."""
NAMES = {kind: name for name, kind in TYPES.items()}
Arrays = dict[str, npt.NDArray[Any]]


def save_state(state: CueState, folder: Path) -> None:
    """Write the state into an existing folder."""
    arrays: Arrays = {}
    structure = _encode(state, arrays)
    (folder / STRUCTURE).write_text(json.dumps(structure, sort_keys=True), "utf-8")
    np.savez(folder / ARRAYS, **arrays)  # type: ignore[arg-type]


def load_state(folder: Path) -> CueState:
    """Return the state that ``save_state`` wrote.

    Raises
    ------
    ValueError
        The folder holds something else.

    """
    structure = read_json(folder / STRUCTURE)
    with np.load(folder / ARRAYS, allow_pickle=False) as stored:
        found = _decode(structure, {name: stored[name] for name in stored.files})
    if not isinstance(found, CueState):
        raise ValueError(f"{folder / STRUCTURE} holds no state of the operator cues: run the recipe again")
    return found


def class_strength(folder: Path) -> float:
    """Return how far the state in a folder balances classes, from 0 (not) to 1 (in full)."""
    return float(read_json(folder / STRUCTURE)["class_strength"])


def follows_shortcut(folder: Path) -> bool:
    """Return whether the weights of the state in a folder balance more than the classes."""
    record = read_json(folder / STRUCTURE)
    return bool(record["blend"] > 0 or record["slice_blend"] > 0)


def _encode(value: Any, arrays: Arrays) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        body = {f.name: _encode(getattr(value, f.name), arrays) for f in fields(value)}
        return {"type": NAMES[type(value)], **body}
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"type": "array", "name": name}
    if isinstance(value, frozenset):
        return {"type": "set", "data": sorted(value)}
    if isinstance(value, tuple):
        return {"type": "tuple", "data": [_encode(v, arrays) for v in value]}
    return value.item() if isinstance(value, np.generic) else value


def _decode(value: Any, arrays: Arrays) -> Any:
    if not isinstance(value, dict):
        return value
    kind = value.pop("type")
    if kind == "array":
        return arrays[value["name"]]
    if kind == "set":
        return frozenset(value["data"])
    if kind == "tuple":
        return tuple(_decode(v, arrays) for v in value["data"])
    return TYPES[kind](**{name: _decode(v, arrays) for name, v in value.items()})
