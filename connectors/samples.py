"""WebDataset samples: members of a tar grouped by key, and their fields as columns."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connectors.base import ConnectorError, CorruptError
from connectors.jsonl_source import infer_json, parse_json
from connectors.tars import Member

KEY = "__key__"
TEXTS = ("txt", "text", "transcript")
NUMBERS = ("cls", "cls2", "index", "inx", "id")
PICKLES = ("pyd", "pkl", "pickle", "pth", "pt", "joblib")


@dataclass(frozen=True)
class Sample:
    """One row: its key, the tar's bytes it lies in, and its fields' content by ending."""

    key: str
    start: int
    stop: int
    fields: dict[str, bytes] = field(default_factory=dict)


def split_samples(path: str, members: Iterable[Member]) -> list[Sample]:
    """Group neighbouring members by key: the name up to the first dot after the last slash.

    Members without an ending and hidden ones are passed over. Raises ConnectorError for a pickle and for a
    field that a sample has twice.
    """
    samples: list[Sample] = []
    for member in members:
        folder, base = os.path.split(member.name)
        stem, dot, ending = base.partition(".")
        if not stem or not dot or not ending:
            continue
        key, ending = os.path.join(folder, stem), ending.lower()
        if ending.rpartition(".")[2] in PICKLES:
            raise ConnectorError(
                f"{path}: {member.name} is pickled Python, and to read it is to run what its writer put in. "
                f"Write plain files instead (.json, .npy, .txt, images)."
            )
        if not samples or samples[-1].key != key:
            samples.append(Sample(key, member.start, member.stop))
        last = samples[-1]
        if ending in last.fields:
            raise CorruptError(
                f"{path}: the sample {key} has two files .{ending}. Give each sample a key of its own."
            )
        last.fields[ending] = member.data
        samples[-1] = replace(last, stop=member.stop)
    return samples


def type_of(path: str, name: str, samples: Callable[[], Sequence[Sample]]) -> pa.DataType:
    """Type of a field by its ending; of json and npy by the samples of one shard. Raises CorruptError."""
    kind = _kind(name)
    if kind == "json":
        lines = _json_lines(path, name, samples())
        return _whole_column(path, name, lambda: infer_json(lines)).field(name).type
    if kind == "npy":
        first = next(sample for sample in samples() if name in sample.fields)
        return pa.list_(pa.from_numpy_dtype(_value(path, name, first).dtype))
    return pa.string() if kind in TEXTS else pa.int64() if kind in NUMBERS else pa.binary()


def column_of(path: str, wanted: pa.Field, samples: Sequence[Sample]) -> pa.Array | pa.ChunkedArray:
    """One field of all samples; null where a sample has none. Raises CorruptError naming the sample."""
    name = wanted.name
    if name == KEY:
        return pa.array([sample.key for sample in samples], wanted.type)
    if _kind(name) == "json":
        lines = _json_lines(path, name, samples)
        return _whole_column(path, name, lambda: parse_json(lines, pa.schema([wanted])))[name]
    values = [_value(path, name, sample) for sample in samples]
    return _whole_column(path, name, lambda: pa.array(values, wanted.type))


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _whole_column(path: str, name: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except pa.ArrowException as error:
        raise CorruptError(
            f"{path}: the values of .{name} are not of one type: {str(error).splitlines()[0].rstrip('. ')}. "
            f"Write them with one type in all samples."
        ) from error


def _json_lines(path: str, name: str, samples: Sequence[Sample]) -> bytes:
    """The field of every sample as one line with one object, which names the field."""
    values = ({name: _value(path, name, sample)} for sample in samples)
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def _value(path: str, name: str, sample: Sample) -> Any:
    data, kind = sample.fields.get(name), _kind(name)
    if data is None:
        return None
    try:
        if kind == "npy":
            return _vector(data)
        if kind == "json":
            return json.loads(data)
        if kind in NUMBERS:
            return int(data)
        return data.decode() if kind in TEXTS else data
    except (ValueError, EOFError) as error:
        what = (
            "a whole number"
            if kind in NUMBERS
            else "UTF-8 text"
            if kind in TEXTS
            else f"a plain .{kind} file"
        )
        raise CorruptError(
            f"{path}, sample {sample.key}: .{name} is not {what}: {error}. Correct it, or leave it out."
        ) from error


def _vector(data: bytes) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False).ravel()
    except Exception as error:  # a broken header may raise anything, MemoryError for a huge shape too
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return found
