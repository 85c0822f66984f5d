"""Predictions of a registered model for a dataset, shard by shard: ``rowsieve predict``.

Each shard of the source becomes one file of the output, which is written under a temporary name and then
renamed. A row that cannot be used has null predictions and a reason. Rows are predicted in blocks of a fixed
size, counted from the start of their shard, so the bytes depend neither on the executor nor on the number of
workers. :mod:`engine.training.serving.prediction_source` opens the source.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors import Source
from connectors.base import ConnectorError, SourceShard
from connectors.parquet_footer import open_parquet
from connectors.sink import write_parquet
from connectors.storage import Place, check_part, make_folder, read_whole
from engine.core.digests import digest
from engine.core.errors import InputError, one_line
from engine.core.json_files import read_key, write_json
from engine.core.output_layout import output_of
from engine.training.data.raw_rows import conform, with_missing, with_points
from engine.training.serving.prediction_source import OpenedSource, SourceRequest, open_for_model
from engine.training.serving.pyfunc import SERVING, ServedModel
from engine.training.serving.served_files import model_files
from engine.training.serving.stored_models import DATA, REGISTER, download
from operators.base import Executor

BLOCK_ROWS = 8_192
RECORD = "_predictions.json"
"""Record of a prediction. Readers of a Parquet folder skip names that begin with an underscore."""
REQUEST = "_request.json"
"""Digest of the model and the rows. The same command finds it and continues an interrupted prediction."""


@dataclass(frozen=True)
class PredictionResult:
    """Result of a prediction for a dataset."""

    model: str
    """The model as the caller named it."""
    version: str
    """The dataset version that the model was trained on."""
    rows: int
    failed: int
    """Rows without a prediction; their ``reason`` says why."""
    parts: tuple[dict[str, Any], ...]
    """``path``, ``rows``, ``failed``, ``sha256`` and ``source`` of each file."""
    filled: tuple[str, ...] = ()
    """Columns of the model that the source lacks: all their values were treated as missing."""
    kept: int = 0
    """Number of files that an earlier, interrupted prediction of the same rows had written."""


def predict(
    model: str, source: SourceRequest, output: str, executor: Executor, *, tracking: str | Path = ""
) -> PredictionResult:
    """Predict all rows of a dataset. Parts that an interrupted call has written are kept.

    Parameters
    ----------
    model
        Folder of an MLflow model that ``rowsieve retrain --register`` made, ``models:/NAME@ALIAS``,
        ``models:/NAME/VERSION`` or ``runs:/RUN/PATH``.
    source
        The rows. They have the columns of the source that the model was trained on.
    output
        Folder to write to. It is new, empty, or left by an interrupted prediction of the same rows.
    executor
        Predicts shards on workers.
    tracking
        Output folder whose MLflow database has the model. It is used if MLFLOW_TRACKING_URI is not set.

    Returns
    -------
    PredictionResult
        The record of the written files. ``_predictions.json`` in the output has the same content.

    Raises
    ------
    InputError
        There is no such model or source, a column is missing, or the output holds other files.

    """
    target = output_of(output)
    with tempfile.TemporaryDirectory() as scratch:
        folder = find_model(model, Path(scratch), tracking)
        files, served = ModelFiles.read(folder), ServedModel(folder)
        keep = tuple(dict.fromkeys(source.keep))
        opened = open_for_model(replace(source, keep=keep), served)
        listing = opened.listing
        kept = _prepare_output(target, output, _request_digest(files, opened, keep))
        work = PredictShard(
            model=files,
            source=opened.source,
            shards=listing.shards,
            schema=listing.schema,
            keep=keep,
            output=target,
            decimal=opened.decimal,
            types=opened.types,
        )
        parts = tuple(executor.map(work, range(len(listing.shards))))
    found = PredictionResult(
        model=model,
        version=served.version,
        rows=sum(part["rows"] for part in parts),
        failed=sum(part["failed"] for part in parts),
        parts=parts,
        filled=tuple(name for name in served.names if name not in listing.schema.names),
        kept=len({part["path"] for part in parts} & kept),
    )
    write_json(target / RECORD, asdict(found))
    return found


def _request_digest(files: ModelFiles, opened: OpenedSource, keep: Sequence[str]) -> str:
    """Return the digest of the model and of the rows to predict, by which a prediction is continued."""
    listing = opened.listing
    request = {
        "model": files.digest,
        "files": listing.identities,
        "schema": [str(field) for field in listing.schema],
        "shards": [shard.rows_text for shard in listing.shards],
        "keep": {name: str(opened.types.get(name, "as in the source")) for name in keep},
        "decimal": opened.decimal,
    }
    return digest(request)


def _prepare_output(target: Place, output: str, request: str) -> set[str]:
    """Create the output folder, or check that it belongs to the same request.

    Returns the names of the parts that it holds already. Raises InputError if it holds anything else.
    """
    if target.exists() and not target.is_dir():
        raise InputError(f"{output} is a file: name a new folder.")
    names = {path.name for path in target.iterdir()} if target.exists() else set()
    mark = target / REQUEST
    if not names:
        make_folder(target)
        write_json(mark, {"request": request})
    elif REQUEST not in names:
        raise InputError(f"{output} is not empty: name a new folder, so that predictions do not mix.")
    elif read_key(mark, "request", str) != request:
        raise InputError(
            f"{output} is not empty: it holds predictions of another model, of other rows, or with other "
            f"options. Name a new folder, so that predictions do not mix."
        )
    return {name for name in names if name.startswith("part-") and name.endswith(".parquet")}


TRAINED = "training.json"
"""Record in the folder of every training."""


def find_model(model: str, scratch: Path, tracking: str | Path = "") -> Path:
    """Return the folder with the files of a model, and download it into ``scratch`` if it is named by a URI.

    Raises InputError if there is no such model.
    """
    folder = Path(model)
    if model.startswith(("models:/", "runs:/")):
        folder = download(model, scratch, output_of(str(tracking)) if tracking else Path())
    for place in (folder, folder / "data" / DATA):
        if (place / SERVING).exists():
            return place
    if (folder / TRAINED).is_file():
        raise InputError(
            f"{folder} is of a training without --register, which keeps no steps from rows to features: "
            f"{REGISTER}"
        )
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
        """Read all files below a folder. Raises InputError beyond the administrator's limits."""
        paths = model_files(folder)
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

    @cached_property
    def digest(self) -> str:
        """Return the digest of the files' names and bytes."""
        found = hashlib.sha256()
        for name, data in self.files.items():
            found.update(f"{name}:{len(data)}:".encode() + data)
        return found.hexdigest()

    def open(self) -> ServedModel:
        """Return the loaded model. A process keeps it for further shards."""
        return _open_files(self.digest, _EqualFiles(self))


class _EqualFiles:
    """Passes the files to :func:`_open_files` without being part of its cache key, which is the digest."""

    def __init__(self, model: ModelFiles) -> None:
        self.model = model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _EqualFiles)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=2)
def _open_files(digest: str, held: _EqualFiles) -> ServedModel:
    """Write the files of a model into a temporary folder and load it, once for each digest."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in held.model.files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return ServedModel(folder)


@dataclass(frozen=True)
class PredictShard:
    """Predicts one shard on a worker and writes its file. Picklable."""

    model: ModelFiles
    source: Source
    shards: tuple[SourceShard, ...]
    schema: pa.Schema
    keep: tuple[str, ...]
    output: Place
    decimal: str = "."
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    def __call__(self, index: int) -> dict[str, Any]:
        """Write ``part-<index>.parquet`` unless it exists, and return its record."""
        served, shard = self.model.open(), self.shards[index]
        name = f"part-{index:05d}.parquet"
        if (self.output / name).exists():  # a file with its final name is complete
            return _read_record(self.output / name, shard, self.output)
        wanted = served.schema.names if served.schema is not None else []
        present = [name for name in wanted if name in self.schema.names]
        table = self.source.read(shard, list(dict.fromkeys([*present, *self.keep])), self.schema)
        blocks = [
            self._predict_block(served, table.slice(start, BLOCK_ROWS))
            for start in range(0, max(table.num_rows, 1), BLOCK_ROWS)
        ]
        found = pa.concat_tables(blocks)
        written = write_parquet(found, self.output / name)
        return {
            "path": name,
            "rows": found.num_rows,
            "failed": found.num_rows - found.column("reason").null_count,
            "sha256": written.sha256,
            "source": shard.rows_text,
        }

    def _predict_block(self, served: ServedModel, table: pa.Table) -> pa.Table:
        """Return the columns to keep and the predictions of one block of rows.

        A kept column has its type of the model where the source was read as text for the model.
        """
        schema = served.schema or pa.schema([])
        rows, faults = conform(with_points(table, schema, self.decimal), schema, served.missing_texts)
        found = served.predict_table(with_missing(rows, served.names, schema), faults)
        for place, name in enumerate(self.keep):
            typed = name in self.types
            column = _as_type(rows.column(name), self.types[name]) if typed else table.column(name)
            found = found.add_column(place, name, column)
        return found


def _read_record(path: Place, shard: SourceShard, output: Place) -> dict[str, Any]:
    """Return the record of a part that was written before; anybody may have changed it since."""
    try:
        data = read_whole(path, root=output)
        file = open_parquet(pa.BufferReader(data), path)
        check_part(path, file)
        if file.metadata.num_rows != shard.n_rows:
            raise ConnectorError(f"it has {file.metadata.num_rows} rows, and its shard {shard.n_rows}")
        reasons = file.read(["reason"])
    except (ConnectorError, pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} was not written by this prediction: {one_line(error)}. Remove it, and predict again."
        ) from None
    return {
        "path": path.name,
        "rows": reasons.num_rows,
        "failed": reasons.num_rows - reasons.column("reason").null_count,
        "sha256": hashlib.sha256(data).hexdigest(),
        "source": shard.rows_text,
    }


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return a column that was conformed to a type; fractions among whole numbers are null."""
    if column.type == kind or not pa.types.is_integer(kind):
        return column.cast(kind)
    whole = [value if value is not None and value % 1 == 0 else None for value in column.to_pylist()]
    return pa.chunked_array([pa.array(whole, pa.float64()).cast(kind, safe=False)])
