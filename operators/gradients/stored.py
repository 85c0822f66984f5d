"""Gradients that somebody has already computed, as arrays on disk: rows by their position.

Three layouts are read. ``npy``: one NumPy file. ``memmap``: numbers alone, row after row. ``bergson``: an
index of EleutherAI's bergson, ``gradients.bin`` with ``info.json`` beside it, whole or in ``shards/``.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from operators.bounded_json import read_json

Layout = Literal["npy", "memmap", "bergson"]
Number = Literal["float16", "bfloat16", "float32", "float64"]
SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
BFLOAT16 = "bfloat16"
SHARD = re.compile(r"(\d{5})-of-(\d{5})")


@dataclass(frozen=True)
class StoredFile:
    """Floats in one file, from byte ``offset`` on: ``n_rows`` rows of ``width`` numbers, row after row.

    The description comes from whoever wrote the file. Raises ValueError unless it is one of floats in a
    regular file: as NumPy's type of objects, bytes of the file would be followed as addresses in memory.
    """

    path: Path
    dtype: str
    n_rows: int
    width: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.dtype != BFLOAT16 and np.dtype(self.dtype).kind != "f":
            raise ValueError(f"{self.path} is described as numbers of the type {self.dtype}, not as floats.")
        if self.n_rows < 0 or self.width < 0:
            raise ValueError(f"{self.path} is described as {self.n_rows} rows of {self.width} numbers.")
        check_regular(self.path)


def check_regular(path: Path) -> None:
    """Raise ValueError for a pipe, which would be waited for, a device and the like; and OSError."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is not a regular file. Correct stored.path.")


@dataclass(frozen=True)
class StoredRows:
    """Rows of one or more files, all of one width, in the order of the files."""

    files: tuple[StoredFile, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.n_rows for file in self.files)

    @property
    def width(self) -> int:
        """Length of a stored vector."""
        return self.files[0].width

    def read(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Read the rows at ascending positions (m,) as (m, width) float32; no others are read from disk."""
        found = np.empty((len(rows), self.width), np.float32)
        first = 0
        for file in self.files:
            low, high = np.searchsorted(rows, (first, first + file.n_rows))
            if low < high:
                found[low:high] = _floats(_mapped(file), rows[low:high] - first)
            first += file.n_rows
        return found


def _mapped(file: StoredFile) -> npt.NDArray[Any]:
    kind = np.dtype("<u2" if file.dtype == BFLOAT16 else file.dtype)
    return np.memmap(file.path, kind, "r", file.offset, (file.n_rows, file.width))


def _floats(stored: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    span = stored[rows[0] : rows[-1] + 1]
    taken = np.asarray(span if len(span) == len(rows) else span[rows - rows[0]])
    if taken.dtype == np.uint16:  # bfloat16 is the upper half of a float32
        return (taken.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # a float64 beyond float32 becomes infinite, and so a faulty row
        return taken.astype(np.float32)


def open_stored(
    path: Path, layout: Layout | Literal["auto"], dtype: Number | None, shape: tuple[int, int] | None
) -> StoredRows:
    """Find the files and their shapes, without reading a row.

    Parameters
    ----------
    path : a file, or a folder for ``bergson``.
    layout : ``auto`` takes a folder for ``bergson``, ``.npy`` for ``npy`` and all else for ``memmap``.
    dtype, shape : of a ``memmap``, which states neither: (rows, numbers in a row), little-endian.

    Raises
    ------
    ValueError
        It is not there, not of that layout, or its size is not what it should be.
    """
    if layout == "auto":
        layout = "bergson" if path.is_dir() else "npy" if path.suffix == ".npy" else "memmap"
    try:
        if layout == "bergson":
            return _bergson(path)
        return StoredRows((_npy(path) if layout == "npy" else _raw(path, dtype, shape),))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}. Correct stored.path.") from error


def _raw(path: Path, dtype: Number | None, shape: tuple[int, int] | None) -> StoredFile:
    if dtype is None or shape is None:
        raise ValueError(f"{path} holds numbers alone: say which with stored.dtype and stored.shape.")
    return _sized(StoredFile(path, BFLOAT16 if dtype == BFLOAT16 else np.dtype(dtype).str, *shape))


def _npy(path: Path) -> StoredFile:
    check_regular(path)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a NumPy file of numbers: {error}") from error
    if not isinstance(array, np.memmap) or array.ndim != 2 or array.dtype.kind != "f":
        kind = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "an archive"
        raise ValueError(
            f"{path} holds {kind}. Gradients are a matrix of floats with a row for each row of the source."
        )
    if not array.flags.c_contiguous:
        raise ValueError(f"{path} is stored column after column. Save np.ascontiguousarray(gradients).")
    n_rows, width = array.shape
    return StoredFile(path, array.dtype.str, n_rows, width, int(array.offset))


def _bergson(folder: Path) -> StoredRows:
    shards = folder / "shards"
    folders = _bergson_shards(shards) if shards.is_dir() else [folder]
    files = tuple(_bergson_file(one) for one in folders)
    kinds = {(file.width, file.dtype) for file in files}
    if len(kinds) > 1:
        raise ValueError(f"{folder}: its shards differ in width or type ({sorted(kinds)}). Build them again.")
    return StoredRows(files)


def _bergson_shards(folder: Path) -> Sequence[Path]:
    found = {entry.name: entry for entry in folder.iterdir() if SHARD.fullmatch(entry.name)}
    total = int(next(iter(found))[-5:]) if found else 0
    wanted = [f"{index:05d}-of-{total:05d}" for index in range(total)]
    if not total or sorted(found) != wanted:
        missing = sorted(set(wanted) - set(found))
        raise ValueError(
            f"{folder} is not a whole set of shards (missing: {missing[:3]}). Let bergson finish."
        )
    return [found[name] for name in wanted]


def _bergson_file(folder: Path) -> StoredFile:
    path = folder / "info.json"
    try:
        info = read_json(path)
        if info.get("attribute_tokens") or info.get("token_attributions"):
            raise ValueError(
                "it holds a gradient for each token; build one for each sequence (attribute_tokens: false)"
            )
        width, dtype = _bergson_type(info)
        return _sized(StoredFile(folder / "gradients.bin", dtype, int(info["num_grads"]), width))
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path} is not a record of bergson's: {type(error).__name__} {error}.") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _bergson_type(info: dict[str, Any]) -> tuple[int, str]:
    """Return how many numbers a row has, and their type.

    Older files name a structured type with one field for each module.
    """
    if "grad_sizes" in info and "base_dtype" in info:
        name = str(info["base_dtype"])
        return sum(map(int, info["grad_sizes"].values())), name if name in SIZES else np.dtype(name).str
    fields = np.dtype(info["dtype"]).fields or {}
    parts = [part.subdtype or (part, (1,)) for part, *_ in fields.values()]
    if len({part.str for part, _ in parts}) != 1:
        raise ValueError(f"its dtype {info['dtype']} is not a list of fields of one type")
    return sum(int(np.prod(shape)) for _, shape in parts), parts[0][0].str


def _sized(file: StoredFile) -> StoredFile:
    """Return the file. Raises ValueError if its size does not match its shape and number type."""
    size = SIZES["bfloat16"] if file.dtype == BFLOAT16 else np.dtype(file.dtype).itemsize
    wanted, found = file.n_rows * file.width * size, file.path.stat().st_size
    if wanted != found:
        raise ValueError(
            f"{file.path} has {found} bytes; {file.n_rows} rows of {file.width} numbers ({file.dtype}) take "
            f"{wanted}. Correct stored.shape and stored.dtype, or write the file again."
        )
    return file
