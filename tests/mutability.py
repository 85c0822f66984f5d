"""What can be changed within a value: for tests of plans and sources, which are immutable at any depth."""

import dataclasses
import types
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from connectors.foundation.immutable import FrozenDict, FrozenList
from operators.base import Operator, OperatorError

IMMUTABLE = (str, int, float, bytes, type(None), PurePath, type, types.FunctionType, pa.DataType, pa.Schema)
"""Types whose values cannot be changed."""
CONTAINERS = (tuple, frozenset, FrozenList)


def faults(value: Any, place: str, seen: dict[int, Any] | None = None) -> Iterator[str]:
    """Yield the place and type of each value within ``value`` that can be changed."""
    seen = {} if seen is None else seen
    if id(value) in seen or isinstance(value, IMMUTABLE):
        return
    seen[id(value)] = value  # keeps it, so that its id is not given to another one
    if isinstance(value, types.MethodType):
        yield from faults(value.__self__, f"{place}.__self__", seen)
    elif isinstance(value, CONTAINERS):
        for index, item in enumerate(value):
            yield from faults(item, f"{place}[{index}]", seen)
    elif isinstance(value, FrozenDict):
        for key, item in value.items():
            yield from faults(item, f"{place}[{key!r}]", seen)
    else:
        if not is_frozen(value):
            yield f"{place}: {type(value).__name__}"
        private = getattr(value, "__pydantic_private__", None) or {}
        for name, item in (vars(value) | private).items() if hasattr(value, "__dict__") else ():
            yield from faults(item, f"{place}.{name}", seen)


def is_frozen(value: Any) -> bool:
    """Return whether attributes of an object cannot be set."""
    if isinstance(value, BaseModel):
        return bool(value.model_config.get("frozen"))
    if isinstance(value, Operator):
        try:
            value.params = value.params
        except OperatorError:
            return True
        return False
    return dataclasses.is_dataclass(value) and bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]
