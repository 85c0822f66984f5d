"""Checks of the files that operators keep in a shared output, before they are read.

Anybody who can write to the output may have changed them. The formats run no code; what is checked here is
that they do not ask for more memory than they have bytes for, and hold no values of Python.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from connectors.errors import ConnectorError
from connectors.foundation.json_text import MAX_BYTES
from connectors.parquet_footer import open_parquet
from connectors.pickled_types import check_types
from engine.core.errors import InputError, one_line
from operators.bounded_json import BadJsonError, parse_json

MAX_HEADER_BYTES = 2**20
"""Bytes of a header of safetensors."""


def check_state(folder: Path, remedy: str = "run the recipe again") -> None:
    """Raise InputError, which names the file, if a state holds something that must not be read.

    Links must stay in the folder. Files of other formats are left to the operator that wrote them.

    Parameters
    ----------
    folder
        The state.
    remedy
        What to do for a new one, for the error.
    """
    inside = folder.resolve()
    for path in sorted(folder.rglob("*")):
        target = path.resolve()
        if not target.is_relative_to(inside):
            raise InputError(f"{path} is a link that leads out of its state, to {target}. Remove it.")
        if path.is_dir():
            continue
        if not path.is_file():
            raise InputError(f"{path} is not a regular file. Remove it, and {remedy}.")
        check = _CHECKS.get(path.suffix)
        if check is None:
            continue
        try:
            with path.open("rb") as file:
                check(file, path.stat().st_size)
        except Exception as error:  # every format's reader has errors of its own, such as tokenize.TokenError
            text = one_line(error, 200)
            raise InputError(
                f"{path} is damaged or forged: {text}. Remove the folder, and {remedy}."
            ) from None


def _json(file: BinaryIO, size: int) -> None:
    _parsed(file.read(MAX_BYTES + 1))


def _parsed(data: bytes) -> Any:
    try:
        return parse_json(data, "the file")
    except BadJsonError as error:
        raise ValueError(error.why) from None


def _array(file: BinaryIO, size: int) -> None:
    """Check the header of a .npy file: no objects, and no more values than there are bytes."""
    version = np.lib.format.read_magic(file)
    read: Any = (
        np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds objects of Python")
    count = 1
    for length in shape:
        if length < 0:
            raise ValueError(f"its shape is {shape}")
        count *= length
    if count * max(dtype.itemsize, 1) > size:
        raise ValueError(f"it states {count} values of {dtype} in {size} bytes")


def _archive(file: BinaryIO, size: int) -> None:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
                raise ValueError(
                    f"{info.filename} would expand from {info.compress_size} to {info.file_size} bytes; "
                    "arrays are stored as they are"
                )
            with archive.open(info) as member:
                _array(member, info.file_size)  # type: ignore[arg-type]


def _tensors(file: BinaryIO, size: int) -> None:
    length = int.from_bytes(file.read(8), "little")
    if length > min(size, MAX_HEADER_BYTES):
        raise ValueError(f"its header states {length} bytes")
    header = _parsed(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")


def _table(file: BinaryIO, size: int) -> None:
    try:
        schema = open_parquet(file, "the file").schema_arrow
        check_types("the file", schema)
    except ConnectorError as error:
        raise ValueError(str(error)) from None
    for field in schema:
        if isinstance(field.type, pa.ExtensionType):
            raise ValueError(f"the column {field.name!r} has the type {field.type}")


_CHECKS: dict[str, Callable[[BinaryIO, int], None]] = {
    ".json": _json,
    ".npy": _array,
    ".npz": _archive,
    ".safetensors": _tensors,
    ".parquet": _table,
}
