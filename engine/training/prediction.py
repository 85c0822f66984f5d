"""Predictions of a registered model for a dataset, shard by shard: ``rowsieve predict``.

Each shard of the source becomes one file of the output, written under a temporary name and renamed. A row
that cannot be used has null predictions and a reason. Rows are predicted in blocks of a fixed size from the
start of their shard, so that the bytes depend neither on the executor nor on the number of workers.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from connectors import ConnectorError, Source, open_source
from connectors.base import Listing, SourceShard
from connectors.registry import find_connector
from connectors.sink import write_parquet
from connectors.storage import Place, make_folder
from connectors.text_encoding import UTF8
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.json_files import read_key, write_json
from engine.core.output_layout import output_of
from engine.core.suggestions import explain, nearest
from engine.training.raw_rows import conform, with_missing, with_points
from engine.training.registry import DATA, download
from engine.training.served_files import model_files
from engine.training.serving import SERVING, Served
from operators.base import Executor

BLOCK_ROWS = 8_192
RECORD = "_predictions.json"
"""Readers of a Parquet folder skip names that begin with an underscore."""
REQUEST = "_request.json"
"""File with the digest of model and rows, by which the same command continues an interrupted prediction."""


@dataclass(frozen=True)
class PredictionResult:
    """Result of a prediction over a dataset."""

    model: str
    version: str
    """The dataset version that the model was trained on."""
    rows: int
    failed: int
    """Rows without a prediction; their ``reason`` says why."""
    parts: tuple[dict[str, Any], ...]
    """``path``, ``rows``, ``failed``, ``sha256`` and ``source`` of each file."""
    filled: tuple[str, ...] = ()
    """Columns of the model that the source lacks and ``allow_missing`` names: all values are imputed."""
    kept: int = 0
    """Files that an earlier, interrupted prediction of the same rows had written."""


def predict(
    model: str,
    source: str,
    output: str,
    executor: Executor,
    *,
    format: str = "auto",
    options: Mapping[str, Any] | None = None,
    encoding: str | None = None,
    keep: Sequence[str] = (),
    allow_missing: Sequence[str] = (),
    tracking: str | Path = "",
) -> PredictionResult:
    """Predict all rows of a dataset. Parts that an interrupted call has written are kept.

    Parameters
    ----------
    model : folder of an MLflow model that ``rowsieve retrain --register`` made, ``models:/NAME@ALIAS``,
        ``models:/NAME/VERSION`` or ``runs:/RUN/PATH``.
    source : file, folder, glob or URI with rows as they are in the source that the model was trained on.
    output : folder to write: new, empty, or left by an interrupted prediction of the same rows.
    executor : predicts shards on workers.
    format : of the source; see ``rowsieve sources``.
    options : of the format, such as ``{"delimiter": ";"}``. Default for files of the format that the model
        was trained on: those of the recipe.
    encoding : of files of text. Default: that of the recipe, if it was trained on files of text.
    keep : columns of the source to put before the predictions.
    allow_missing : columns of the model that the source may lack: rows are predicted as if all their values
        were missing.
    tracking : output folder whose MLflow database has the model, where MLFLOW_TRACKING_URI names no server.

    Returns
    -------
    The record of the written files, which ``_predictions.json`` in the output holds too.

    Raises
    ------
    InputError
        There is no such model or source, a column is missing, or the output holds files already.

    """
    target = output_of(output)
    with tempfile.TemporaryDirectory() as scratch:
        folder = find_model(model, Path(scratch), tracking)
        files = ModelFiles.read(folder)
        served = Served(folder)
        keep = tuple(dict.fromkeys(keep))
        opened = _open_source(source, format, (options, encoding), served, keep, allow_missing)
        listing = opened.listing
        request = {
            "model": files.digest,
            "files": listing.identities,
            "schema": [str(field) for field in listing.schema],
            "shards": [shard.rows_text for shard in listing.shards],
            "keep": [*keep],
            "decimal": opened.decimal,
        }
        kept = _prepare_output(target, output, digest(request))
        work = PredictShard(
            files, opened.source, listing.shards, listing.schema, keep, target, opened.decimal
        )
        parts = tuple(executor.map(work, range(len(listing.shards))))
    found = PredictionResult(
        model,
        served.version,
        sum(part["rows"] for part in parts),
        sum(part["failed"] for part in parts),
        parts,
        tuple(name for name in served.names if name not in listing.schema.names),
        len({part["path"] for part in parts} & kept),
    )
    write_json(target / RECORD, asdict(found))
    return found


def _prepare_output(target: Place, output: str, request: str) -> set[str]:
    """Make the folder ready for a request; return the names of the parts of it that are there already.

    Raises InputError if the folder holds anything else.
    """
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
        """Read all files below a folder. Raises InputError beyond the limits of the operator's policy."""
        paths = model_files(folder)
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

    @cached_property
    def digest(self) -> str:
        """Return the digest of the files' names and bytes."""
        found = hashlib.sha256()
        for name, data in self.files.items():
            found.update(f"{name}:{len(data)}:".encode() + data)
        return found.hexdigest()

    def open(self) -> Served:
        """Return the model, which a worker keeps open between shards."""
        return _open_files(self.digest, _EqualFiles(self))


class _EqualFiles:
    """Argument that the cache of :func:`_open_files` ignores: all are equal, and the digest is the key."""

    def __init__(self, model: ModelFiles) -> None:
        self.model = model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _EqualFiles)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=2)
def _open_files(digest: str, held: _EqualFiles) -> Served:
    """Write the files of a model into a temporary folder and load it, once for each digest."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in held.model.files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return Served(folder)


@dataclass(frozen=True)
class PredictShard:
    """Callable that predicts one shard and writes its file. Picklable."""

    model: ModelFiles
    source: Source
    shards: tuple[SourceShard, ...]
    schema: pa.Schema
    keep: tuple[str, ...]
    output: Place
    decimal: str = "."

    def __call__(self, index: int) -> dict[str, Any]:
        """Write ``part-<index>.parquet``, unless it is there, and return its record."""
        served, shard = self.model.open(), self.shards[index]
        name = f"part-{index:05d}.parquet"
        if (self.output / name).exists():  # a file with its final name is complete
            return _read_record(self.output / name, shard)
        wanted = served.schema.names if served.schema is not None else []
        present = [name for name in wanted if name in self.schema.names]
        table = self.source.read(shard, list(dict.fromkeys([*present, *self.keep])), self.schema)
        blocks = [
            _predict_block(served, table.slice(start, BLOCK_ROWS), self.keep, self.decimal)
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


def _read_record(path: Place, shard: SourceShard) -> dict[str, Any]:
    """Return the record of a part that was written before."""
    data = path.read_bytes()
    reasons = pq.read_table(pa.BufferReader(data), columns=["reason"])
    return {
        "path": path.name,
        "rows": reasons.num_rows,
        "failed": reasons.num_rows - reasons.column("reason").null_count,
        "sha256": hashlib.sha256(data).hexdigest(),
        "source": shard.rows_text,
    }


def _predict_block(served: Served, table: pa.Table, keep: Sequence[str], decimal: str) -> pa.Table:
    """Return the predictions of one block of rows, behind the columns of the source that are kept."""
    schema = served.schema or pa.schema([])
    rows, faults = conform(with_points(table, schema, decimal), schema, served.missing_texts)
    found = served.predict_table(with_missing(rows, served.names, schema), faults)
    for place, name in enumerate(keep):
        found = found.add_column(place, name, table.column(name))
    return found


@dataclass(frozen=True)
class _Opened:
    """A source that was opened and listed, and the decimal point of numbers in its texts."""

    source: Source
    listing: Listing
    decimal: str = "."


def _open_source(
    path: str,
    format: str,
    settings: tuple[Mapping[str, Any] | None, str | None],
    served: Served,
    keep: Sequence[str],
    allow_missing: Sequence[str],
) -> _Opened:
    """Open and list the source; columns that a CSV may hold badly are read as text.

    Raises InputError for a source that cannot be read, and for a missing column.
    """
    if served.schema is None:
        raise InputError(
            "The model was registered by an earlier version of Rowsieve and does not know the types of its "
            "columns. Register it again with `rowsieve retrain`."
        )
    try:
        opened = _open_and_list(path, format, *settings, served)
    except ConnectorError as error:
        text = str(error).replace("Correct source.path", "Correct the path")
        raise InputError(text) from None
    except ValidationError as error:
        known = find_connector(path, format).Options
        raise InputError(explain(error, known, "rowsieve predict", prefix="--option ")) from None
    names = opened.listing.schema.names
    for name in keep:
        if name in served.answers:
            raise InputError(f"--keep {name}: a column of the predictions has this name.")
        if name not in names:
            raise InputError(f"{path} has no column {name!r} (--keep).{_suggest(name, names)}")
    _check_missing(path, names, served, allow_missing)
    return opened


def _suggest(name: str, names: Sequence[str]) -> str:
    """Return the nearest name as a sentence, or the list of all names."""
    return nearest(name, names) or f" The columns are: {', '.join(names)}."


def _check_missing(path: str, names: Sequence[str], served: Served, allowed: Sequence[str]) -> None:
    """Raise InputError for a column of the model that the source lacks, unless it is allowed to."""
    for name in allowed:
        if name not in served.names:
            suggestion = _suggest(name, served.names)
            raise InputError(f"--allow-missing {name}: the model has no such column.{suggestion}")
        if name not in names and name not in served.optional:
            raise InputError(
                f"{path} has no column {name!r}, and --allow-missing cannot help: the model has no rule for "
                f"missing values of this column."
            )
    missing = [name for name in served.names if name not in names and name not in allowed]
    if not missing:
        return
    text = f"{path} has no column {missing[0]!r} (the model reads it)."
    if missing[1:]:
        text += f" It lacks {', '.join(map(repr, missing[1:6]))}{', ...' * (len(missing) > 6)} too."
    text += _suggest(missing[0], names)
    if not served.reading:
        text += (
            " The model does not say how the source that it was trained on was read, since an earlier "
            "version of Rowsieve has registered it. Register it again, or say how this source is read, with "
            "--option 'delimiter=;'."
        )
    if missing[0] in served.optional:
        option = f"--allow-missing {shlex.quote(missing[0])}"
        text += f" To predict as if all its values were missing, give {option}."
    raise InputError(text)


def _open_and_list(
    path: str, format: str, options: Mapping[str, Any] | None, encoding: str | None, served: Served
) -> _Opened:
    """Open and list the source, a CSV with the model's columns as text: a bad value is then one row's fault.

    Raises ConnectorError, and ValidationError for an option.
    """
    reading, connector = served.reading, find_connector(path, format)
    name = connector.name
    if options is None and reading.get("format") == name:
        options = reading.get("options")
    if encoding is None:
        encoding = reading.get("encoding", UTF8) if connector.has_encoding else UTF8
    given: dict[str, Any] = {"options": dict(options or {}), "encoding": encoding}
    given |= _applicable_renames(path, format, given, reading)
    opened = open_source(path, format, **given)
    if name != "csv":
        return _Opened(opened, opened.list())
    decimal = str(given["options"].get("decimal", "."))
    scalars = _scalar_columns(served, served.schema.names if served.schema is not None else [])
    stored = {new: old for old, new in given.get("rename", {}).items()}
    try:
        names = opened.list().schema.names
    except ConnectorError as error:  # as for one word in a column of numbers
        opened = open_source(path, format, **given, text_columns=tuple(stored.get(n, n) for n in scalars))
        try:
            return _Opened(opened, opened.list(), decimal)
        except ConnectorError:
            raise error from None
    texts = tuple(stored.get(name, name) for name in scalars if name in names)
    opened = open_source(path, format, **given, text_columns=texts)
    return _Opened(opened, opened.list(), decimal)


def _applicable_renames(
    path: str, format: str, given: Mapping[str, Any], reading: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keys ``rename`` and ``flatten`` of the recipe, as far as this source has such columns."""
    rename, flatten = reading.get("rename") or {}, reading.get("flatten") or []
    if not rename and not flatten:
        return {}
    try:
        stored = open_source(path, format, **given).list().schema.names
    except ConnectorError:  # as for two columns of one name, which are renamed
        return {"rename": rename, "flatten": flatten}
    renamed = {old: new for old, new in rename.items() if old.split(".")[0] in stored and new not in stored}
    shown = {*stored, *renamed.values()}
    return {"rename": renamed, "flatten": tuple(name for name in flatten if name.split(".")[0] in shown)}


def _scalar_columns(served: Served, names: Sequence[str]) -> list[str]:
    """Return the scalar columns among ``names``: read as text, a faulty value is a fault of its row alone."""
    schema = served.schema or pa.schema([])
    return [name for name in names if not pa.types.is_nested(schema.field(name).type)]
