"""Rows of a published version for the trainers of other libraries: arrays, Torch datasets, Ray Data.

Features are those that the run's operators made, such as the encoded columns; labels are class indices.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import nearest
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.training.data.features import FeatureMaker
from engine.training.data.version import Version
from operators.arrays import Float64
from operators.base import GROUP, LABEL, ROW_ID, SPLIT, WEIGHT

if TYPE_CHECKING:
    import ray.data

    from engine.training.serving.pyfunc import ServedFeatures


@dataclass(frozen=True)
class TrainingRows:
    """n rows of one split with d features.

    Attributes
    ----------
    X
        Features, float32 of shape (n, d).
    y
        Class indices, int64 of shape (n,).
    sample_weight
        Published weights, float64 of shape (n,), with a mean near 1 over all rows that are kept.
    group
        Inferred groups, int64 of shape (n,); -1 for rows in none.
    row_id
        Published row ids, int64 of shape (n,).
    classes
        Labels of the source in the order of their indices.

    """

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    sample_weight: Float64
    group: npt.NDArray[np.int64]
    row_id: npt.NDArray[np.int64]
    classes: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        """Yield features, labels and weights, so that ``X, y, weight = rows``."""
        return iter((self.X, self.y, self.sample_weight))


@dataclass
class SplitReader:
    """Reads the rows of one split part by part. Picklable for processes of the same host."""

    maker: FeatureMaker
    prefix: str
    split: str
    classes: tuple[Any, ...]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the operators that the maker has opened."""
        return {**self.__dict__, "maker": replace(self.maker)}

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.maker.reader.shards)

    def read(self, part: int) -> TrainingRows:
        """Return the rows of one part that are in the split."""
        names = [self.prefix + name for name in (SPLIT, WEIGHT, GROUP)]
        table, X = self.maker.read(part, names)
        mine = np.flatnonzero(pc.equal(table.column(names[0]).cast(pa.string()), self.split).to_numpy())
        return TrainingRows(
            X[mine],
            table.column(LABEL).to_numpy().astype(np.int64)[mine],
            table.column(names[1]).to_numpy().astype(np.float64)[mine],
            table.column(names[2]).to_numpy().astype(np.int64)[mine],
            table.column(ROW_ID).to_numpy()[mine],
            self.classes,
        )

    def read_all(self) -> TrainingRows:
        """Return the rows of all parts in the order of their ids."""
        parts = [self.read(part) for part in range(len(self))]
        parts = [part for part in parts if len(part)] or parts[:1]  # a part without rows may have no width
        return TrainingRows(
            np.concatenate([part.X for part in parts]),
            np.concatenate([part.y for part in parts]),
            np.concatenate([part.sample_weight for part in parts]),
            np.concatenate([part.group for part in parts]),
            np.concatenate([part.row_id for part in parts]),
            self.classes,
        )

    def to_ray(self) -> ray.data.Dataset:
        """Return a Ray dataset of the rows, read part by part on its workers."""
        import ray.data

        state = self.maker.state
        paths = sorted(path for path in state.rglob("*") if path.is_file())
        files = tuple((str(path.relative_to(state)), path.read_bytes()) for path in paths)
        numbers = [{"part": part} for part in range(len(self))]
        parts = ray.data.from_items(numbers, override_num_blocks=len(self))
        return parts.map_batches(_read_part, batch_size=1, fn_kwargs={"shipped": _Shipped(self, files)})


@dataclass(frozen=True)
class _Shipped:
    """A reader with the files of its state, for workers on other hosts."""

    reader: SplitReader
    files: tuple[tuple[str, bytes], ...]

    def __hash__(self) -> int:
        return hash((self.reader.split, str(self.reader.maker.reader.folder), self.files))


@lru_cache(maxsize=1)
def _unpacked(shipped: _Shipped) -> tuple[SplitReader, tempfile.TemporaryDirectory[str]]:
    """Return the reader with its state in a folder of this process, and the folder, which lives as long."""
    folder = tempfile.TemporaryDirectory(prefix="rowsieve-features-")
    for name, content in shipped.files:
        path = Path(folder.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    maker = replace(shipped.reader.maker, state=Path(folder.name))
    return replace(shipped.reader, maker=maker), folder


def _read_part(batch: Mapping[str, npt.NDArray[np.int64]], shipped: _Shipped) -> dict[str, npt.NDArray[Any]]:
    """Return the rows of one part as the columns of a block."""
    rows = _unpacked(shipped)[0].read(int(batch["part"][0]))
    return {
        "x": rows.X,
        "y": rows.y,
        "weight": rows.sample_weight,
        "group": rows.group,
        "row_id": rows.row_id,
    }


class SplitReaders:
    """Readers of a version's splits. Their other files are in a temporary folder of this object."""

    def __init__(self, version: Version) -> None:
        self._version = version

    def of(self, split: str) -> SplitReader:
        """Return the reader of a split. Raises InputError if the version has none of this name."""
        check_split(self._version, split)
        maker = self._maker
        return SplitReader(maker, self._version.prefix, split, tuple(maker.classes))

    @cached_property
    def _new_rows(self) -> ServedFeatures:
        """The maker of the same features from source columns of other rows."""
        from engine.training.serving.pyfunc import ServedFeatures, describe_features

        self._described = tempfile.TemporaryDirectory(prefix="rowsieve-features-")
        folder = Path(self._described.name)
        describe_features(self._version, self._maker, folder)
        return ServedFeatures(folder, len(self._maker.classes))

    def features(self, rows: Any) -> npt.NDArray[np.float32]:
        """Return the features (n, d) of other rows. Raises InputError for one that cannot be used."""
        if not hasattr(rows, "__arrow_c_stream__"):
            raise InputError(
                f"The rows cannot be used: they have the type {type(rows).__name__}. Give a pandas or polars "
                f"DataFrame or an Arrow table; a lazy frame needs .collect() first."
            )
        if not hasattr(rows, "__len__"):  # a reader of batches
            rows = pa.table(rows)
        if not len(rows):
            return np.empty((0, self._maker.n_features), np.float32)
        made = self._new_rows
        try:
            X, reasons = made.features(*_request_table(rows, made))
        except ValueError as error:
            raise InputError(f"The rows cannot be used: {error}") from None
        for row, reason in enumerate(reasons):
            if reason is not None:
                raise InputError(f"Row {row} cannot be used: {reason}. Leave it out, or repair it.")
        return X

    @cached_property
    def _maker(self) -> FeatureMaker:
        self._folder = tempfile.TemporaryDirectory(prefix="rowsieve-features-")
        maker = FeatureMaker(self._version.reader(), Path(self._folder.name))
        maker.fit(LocalExecutor())
        return maker


def _request_table(rows: Any, made: ServedFeatures) -> tuple[pa.Table, dict[int, str]]:
    """Return rows as a table with the types of the version's columns, and the faults of rows.

    Raises ValueError for two columns of one name.
    """
    from engine.training.data.raw_rows import conform, table_of

    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        return table_of(rows, made.schema, made.missing_texts)
    table = pa.table(rows)
    twice = [name for name, number in Counter(table.column_names).items() if number > 1]
    if twice:
        raise ValueError(f"they have two columns {twice[0]!r}. Rename one of them")
    return conform(table, made.schema or table.schema, made.missing_texts)


def check_split(version: Version, split: str) -> None:
    """Raise InputError if a version has no split of this name."""
    known = sorted(version.manifest["summary"]["splits"])
    if split not in known:
        hint = nearest(split, known) or f" It has: {', '.join(known) or 'none'}."
        raise InputError(f"The version {version.name} has no split {split!r}.{hint}")
