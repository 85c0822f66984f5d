"""Predictions of a registered model for a dataset, shard by shard: ``rowsieve predict``.

Each shard of the source becomes one file of the output, written under a temporary name and renamed. A row
that cannot be used has null predictions and a reason. Rows are predicted in blocks of a fixed size from the
start of their shard, so that the bytes depend neither on the executor nor on the number of workers.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors import ConnectorError, Source, open_source
from connectors.base import Listing, SourceShard
from connectors.registry import find_connector
from connectors.sink import write_parquet
from connectors.storage import Place, make_folder
from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.core.output_layout import output_of
from engine.core.suggestions import nearest
from engine.training.raw_rows import conform
from engine.training.registry import DATA, download
from engine.training.serving import SERVING, Served
from operators.base import Executor

BLOCK_ROWS = 8_192
RECORD = "_predictions.json"
"""Readers of a Parquet folder skip names that begin with an underscore."""


@dataclass(frozen=True)
class Predicted:
    """Result of a prediction over a dataset."""

    model: str
    version: str
    """The dataset version that the model was trained on."""
    rows: int
    failed: int
    """Rows without a prediction; their ``reason`` says why."""
    parts: tuple[dict[str, Any], ...]
    """``path``, ``rows``, ``failed``, ``sha256`` and ``source`` of each file."""


def predict(
    model: str,
    source: str,
    output: str,
    executor: Executor,
    *,
    format: str = "auto",
    keep: Sequence[str] = (),
    tracking: str | Path = "",
) -> Predicted:
    """Predict all rows of a dataset.

    Parameters
    ----------
    model : folder of an MLflow model that ``rowsieve retrain --register`` made, ``models:/NAME@ALIAS``,
        ``models:/NAME/VERSION`` or ``runs:/RUN/PATH``.
    source : file, folder, glob or URI with rows as they are in the source that the model was trained on.
    output : folder to write; it must be new or empty.
    executor : predicts shards on workers.
    format : of the source; see ``rowsieve sources``.
    keep : columns of the source to put before the predictions.
    tracking : output folder whose MLflow database has the model, where MLFLOW_TRACKING_URI names no server.

    Returns
    -------
    What was written; ``_predictions.json`` in the output holds the same.

    Raises
    ------
    InputError
        There is no such model or source, a column is missing, or the output holds files already.

    """
    target = output_of(output)
    if target.exists() and any(True for _ in target.iterdir()):
        raise InputError(f"{output} is not empty: name a new folder, so that predictions do not mix.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = find_model(model, Path(scratch), tracking)
        files = ModelFiles.read(folder)
        served = Served(folder)
        opened, shards, schema = _open_source(source, format, served, keep)
        make_folder(target)
        work = PredictShard(files, opened, shards, schema, tuple(keep), target)
        parts = tuple(executor.map(work, range(len(shards))))
    found = Predicted(
        model,
        served.version,
        sum(part["rows"] for part in parts),
        sum(part["failed"] for part in parts),
        parts,
    )
    write_json(target / RECORD, asdict(found))
    return found


def find_model(model: str, scratch: Path, tracking: str | Path = "") -> Path:
    """Return the folder with the files of a model, downloaded if necessary. Raises InputError."""
    folder = Path(model)
    if model.startswith(("models:/", "runs:/")):
        folder = download(model, scratch, output_of(str(tracking)) if tracking else Path())
    for place in (folder, folder / "data" / DATA):
        if (place / SERVING).exists():
            return place
    raise InputError(
        f"{folder} holds no model of `rowsieve retrain --register`: neither {SERVING} nor "
        f"data/{DATA}/{SERVING} is there. Give the folder of an MLflow model, or a URI such as "
        f"models:/NAME@champion."
    )


@dataclass(frozen=True)
class ModelFiles:
    """The files of a served model as bytes, so that workers on any host can open them. Picklable."""

    files: Mapping[str, bytes]

    @classmethod
    def read(cls, folder: Path) -> ModelFiles:
        """Read all files below a folder."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

    @cached_property
    def digest(self) -> str:
        """Digest of names and bytes."""
        found = hashlib.sha256()
        for name, data in self.files.items():
            found.update(f"{name}:{len(data)}:".encode() + data)
        return found.hexdigest()

    def open(self) -> Served:
        """Return the model, which a worker keeps open between shards."""
        return _opened(self.digest, _Held(self))


class _Held:
    """Carries files past the cache of :func:`_opened`, which goes by their digest: all are equal."""

    def __init__(self, model: ModelFiles) -> None:
        self.model = model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=2)
def _opened(digest: str, held: _Held) -> Served:
    with tempfile.TemporaryDirectory() as folder:
        for name, data in held.model.files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return Served(folder)


@dataclass(frozen=True)
class PredictShard:
    """Predicts one shard and writes its file. Picklable."""

    model: ModelFiles
    source: Source
    shards: tuple[SourceShard, ...]
    schema: pa.Schema
    keep: tuple[str, ...]
    output: Place

    def __call__(self, index: int) -> dict[str, Any]:
        """Write ``part-<index>.parquet`` and return its record."""
        served, shard = self.model.open(), self.shards[index]
        wanted = served.schema.names if served.schema is not None else []
        there = [name for name in wanted if name in self.schema.names]
        table = self.source.read(shard, list(dict.fromkeys([*there, *self.keep])), self.schema)
        blocks = [
            _predict_block(served, table.slice(start, BLOCK_ROWS), self.keep)
            for start in range(0, max(table.num_rows, 1), BLOCK_ROWS)
        ]
        found = pa.concat_tables(blocks)
        name = f"part-{index:05d}.parquet"
        written = write_parquet(found, self.output / name)
        return {
            "path": name,
            "rows": found.num_rows,
            "failed": found.num_rows - found.column("reason").null_count,
            "sha256": written.sha256,
            "source": shard.rows_text,
        }


def _predict_block(served: Served, table: pa.Table, keep: Sequence[str]) -> pa.Table:
    rows, faults = conform(table, served.schema or pa.schema([]), served.missing_texts)
    found = served.predict_table(rows, faults)
    for place, name in enumerate(keep):
        found = found.add_column(place, name, table.column(name))
    return found


def _open_source(
    path: str, format: str, served: Served, keep: Sequence[str]
) -> tuple[Source, tuple[SourceShard, ...], pa.Schema]:
    """Open and list the source; columns that a CSV may hold badly are read as text.

    Raises InputError for a source that cannot be read, and for a missing column.
    """
    if served.schema is None:
        raise InputError(
            "The model was registered by an earlier version of Rowsieve and does not know the types of its "
            "columns. Register it again with `rowsieve retrain`."
        )
    try:
        opened, listing = _list(path, format, served)
    except ConnectorError as error:
        raise InputError(str(error)) from None
    names = listing.schema.names
    wanted = [name for name in served.schema.names if name in names]
    for name, role in [*((n, "the model reads it") for n in served.needed), *((n, "--keep") for n in keep)]:
        if name not in names:
            hint = nearest(name, names) or f" The columns are: {', '.join(names)}."
            raise InputError(f"{path} has no column {name!r} ({role}).{hint}")
    taken = {"prediction", "reason"}.intersection(keep)
    if taken:
        raise InputError(f"--keep {sorted(taken)[0]}: a column of the predictions has this name.")
    if served.schema.names and not wanted:
        raise InputError(
            f"{path} has none of the model's columns: it has {', '.join(names)}, and the model reads "
            f"{', '.join(served.schema.names)}."
        )
    return opened, listing.shards, listing.schema


def _list(path: str, format: str, served: Served) -> tuple[Source, Listing]:
    """Open and list the source, a CSV with the model's columns as text: a bad value is then one row's fault.

    Raises ConnectorError.
    """
    opened = open_source(path, format)
    if find_connector(path, format).name != "csv":
        return opened, opened.list()
    scalars = _as_text(served, served.schema.names if served.schema is not None else [])
    try:
        names = opened.list().schema.names
    except ConnectorError as error:  # as for one word in a column of numbers
        opened = open_source(path, format, text_columns=tuple(scalars))
        try:
            return opened, opened.list()
        except ConnectorError:
            raise error from None
    opened = open_source(path, format, text_columns=tuple(name for name in scalars if name in names))
    return opened, opened.list()


def _as_text(served: Served, names: Sequence[str]) -> list[str]:
    """Return the scalar columns among ``names``: read as text, a faulty value is a fault of its row alone."""
    schema = served.schema or pa.schema([])
    return [name for name in names if not pa.types.is_nested(schema.field(name).type)]
