"""Reading a published version from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import nearest
from connectors.storage import Place, read_columns
from engine.core.errors import InputError
from engine.runs.descriptions import required_descriptions
from engine.training.data.version import Version, open_version
from operators.base import SPLIT
from operators.counts import count

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import ray.data
    from torch.utils.data import Dataset

    from .training_rows import SplitReaders, TrainingRows


GROUP_COLUMNS = ("group", "class", "rows", "share", "accuracy", "description")
"""Columns of the table of groups."""


class PublishedVersion:
    """An immutable published version. Iterating reads one part at a time.

    Use ``rowsieve.open`` to make one.
    """

    def __init__(self, found: Version) -> None:
        self._found = found

    @property
    def version(self) -> str:
        """Name of the version, such as ``v8332abe5d7e9``."""
        return self._found.name

    @property
    def path(self) -> Place:
        """Folder of the version."""
        return self._found.folder

    @property
    def manifest(self) -> dict[str, Any]:
        """The version's manifest: rows, schema, parts with digests, source and operators."""
        return self._found.manifest

    @property
    def num_rows(self) -> int:
        """Number of rows in all parts."""
        return int(self.manifest["rows"])

    @property
    def column_names(self) -> list[str]:
        """Names of the source's columns, then of the published ones."""
        return [str(field["name"]) for field in self.manifest["schema"]]

    @property
    def prefix(self) -> str:
        """Text before the names of the published columns; empty unless the recipe set ``output.prefix``."""
        return self._found.prefix

    @property
    def groups(self) -> pd.DataFrame:
        """One row for each group of each class and, with ``group`` -1, those of the class in no group.

        Columns: ``group``, ``class`` (as the label column has it), ``rows``, ``share``, ``accuracy`` of the
        classifier of the chain on the group (NaN where there is none), and ``description``: the group in
        words of the source. Quarantined rows are in none of them, and ``share`` is that of the other rows.

        Raises
        ------
        InputError
            The version was published before groups were described.

        """
        import pandas as pd

        described = required_descriptions(self._found.output, self.version)
        frame = pd.DataFrame(described["groups"], columns=list(GROUP_COLUMNS))
        frame["class"] = self._labels(frame["class"].tolist())
        return frame.astype({"accuracy": "float64", "share": "float64"})

    def _labels(self, names: list[str]) -> list[Any]:
        """Return names of classes as values of the label column; as texts where they are not of its type."""
        types = {field["name"]: field["type"] for field in self.manifest["schema"]}
        try:
            kind = pa.type_for_alias(types.get(self.manifest["source"]["label"], "string"))
            labels: list[Any] = pa.array(names, pa.string()).cast(kind).to_pylist()
        except (ValueError, pa.ArrowException):
            return names
        return labels

    def iter_parts(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the parts in the order of ``row_id``, each read when it is asked for."""
        names = None if columns is None else self._checked(columns)
        for part in self.manifest["parts"]:
            yield read_columns(self.path / part["path"], names)

    def __iter__(self) -> Iterator[pa.Table]:
        return self.iter_parts()

    def to_arrow(self, columns: Sequence[str] | None = None, split: str | None = None) -> pa.Table:
        """Return the rows of a split, by default all, in the order of ``row_id`` as one Arrow table."""
        parts = self.iter_parts(columns) if split is None else self._parts_of(split, columns)
        return pa.concat_tables(list(parts), promote_options="default")

    def to_pandas(self, columns: Sequence[str] | None = None, split: str | None = None) -> pd.DataFrame:
        """Return the rows of a split, by default all, in the order of ``row_id`` as a pandas DataFrame."""
        frame: pd.DataFrame = self.to_arrow(columns, split).to_pandas()
        return frame

    def for_sklearn(self, split: str = "train") -> TrainingRows:
        """Return features, class indices and weights of a split as arrays, for ``fit(X, y, sample_weight)``.

        Features are the ones that the run's operators made, such as the encoded columns.

        Raises
        ------
        InputError
            The version has no such split.

        """
        return self._readers.of(split).read_all()

    def features(self, rows: Any) -> npt.NDArray[np.float32]:
        """Return the features (n, d) of other rows, as the version's operators make them.

        A model that was trained on the features of ``for_sklearn`` or ``to_torch`` predicts from these.

        Parameters
        ----------
        rows
            N rows with the source columns that the features are made from, as a pandas or polars DataFrame or
            an Arrow table; other columns are ignored.

        Raises
        ------
        InputError
            A column is missing, or a row cannot be used.

        """
        return self._readers.features(rows)

    def to_torch(
        self, split: str = "train", *, streaming: bool = False, batch_size: int = 256, seed: int = 0
    ) -> Dataset[tuple[Any, ...]]:
        """Return a Torch dataset of features, class indices and weights of a split.

        Parameters
        ----------
        split
            Name of the split.
        streaming
            False: all rows in memory, one ``(x, y, weight)`` an item, with the tensors in ``.tensors``. True:
            batches, with one part at a time in memory, in another order in every pass.
        batch_size, seed
            Rows of a batch, and what the order follows from, where it is streamed.

        """
        from .torch_rows import StreamedRows, in_memory

        reader = self._readers.of(split)
        return StreamedRows(reader, batch_size, seed) if streaming else in_memory(reader)

    def to_ray(self, split: str = "train") -> ray.data.Dataset:
        """Return a Ray dataset of a split with the columns ``x``, ``y``, ``weight``, ``group``, ``row_id``.

        Workers read the parts, so that rows do not pass through this process.
        """
        return self._readers.of(split).to_ray()

    @cached_property
    def _readers(self) -> SplitReaders:
        from .training_rows import SplitReaders

        return SplitReaders(self._found)

    def _checked(self, columns: Sequence[str]) -> list[str]:
        """Return the columns. Raises InputError, which names the nearest one, if the version lacks one."""
        known = self.column_names
        for name in columns:
            if name not in known:
                hint = nearest(name, known) or f" It has: {', '.join(known)}."
                raise InputError(f"The version {self.version} has no column {name!r}.{hint}")
        return list(columns)

    def _parts_of(self, split: str, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        """Yield the rows of each part that are in a split."""
        from .training_rows import check_split

        check_split(self._found, split)
        name = self.prefix + SPLIT
        wanted = self.column_names if columns is None else list(columns)
        for part in self.iter_parts(list(dict.fromkeys([*wanted, name]))):
            yield part.filter(pc.equal(part.column(name).cast(pa.string()), split)).select(wanted)

    def __repr__(self) -> str:
        return f"PublishedVersion({self.version!r}, {count(self.num_rows, 'row')}, {str(self.path)!r})"


def open(path: str | Path | Place, version: str | None = None) -> PublishedVersion:
    """Open a published version for reading.

    Parameters
    ----------
    path
        Output folder of a recipe, a version's own folder, or a URI such as ``s3://bucket/out``.
    version
        Name of a version in that output. By default the current one.

    Returns
    -------
    PublishedVersion
        Reads nothing but the manifest until rows are asked for.

    Raises
    ------
    InputError
        There is no such output or version; the message names the nearest one.

    Examples
    --------
    >>> import tempfile, numpy as np, pandas as pd, rowsieve
    >>> rng = np.random.default_rng(0)
    >>> label = rng.integers(0, 2, 200)
    >>> cue = np.where(rng.random(200) < 0.85, label, 1 - label)
    >>> frame = pd.DataFrame({"cue": cue + rng.normal(0, 0.1, 200), "label": label})
    >>> output = tempfile.mkdtemp()
    >>> curated = rowsieve.curate(frame, label="label", output=output)
    >>> published = rowsieve.open(output)
    >>> published.version == curated.version
    True
    >>> published.to_pandas(["row_id", "group"]).shape
    (200, 2)
    >>> sum(part.num_rows for part in published)
    200

    """
    if not str(path).strip():
        raise InputError(
            "rowsieve.open: the path is empty. Give the output folder of a recipe that has run, such as "
            "demo/out, the folder of one version, or a URI such as s3://bucket/out."
        )
    place = path if version is None else f"{path}@{version}"
    return PublishedVersion(open_version(str(place) if isinstance(place, Path) else place))
