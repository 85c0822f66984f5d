"""Descriptions of the groups of a published version, kept in ``reports/<version>.groups.json``.

They are computed once after publishing, from a bounded sample: one pass over the small columns draws rows of
every group by a hash of their ids, a second pass reads the source columns of these rows. The figures of a
rule come from drawn rows that the rule was not fitted to. Columns that the recipe names as truth, and the
label, are never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.storage import Place, read_columns
from engine.core.errors import InputError
from engine.core.json_files import read_json
from engine.core.output_layout import version_folder
from engine.plan.chain import CUES
from engine.plan.model import Plan
from engine.plan.sources import published_columns
from engine.report.context import read_classes
from engine.report.survey import ROW, Rows, first_per_group, rows_of
from engine.runs.description_format import fault_of
from engine.storage.reader import StoreReader
from operators.base import FEATURES, GROUP, LABEL, PREDICTION, ROW_ID, Executor
from operators.columns import is_binary, vectors_to_numpy
from operators.cues.output.listing import SUSPECTS, read_suspects
from operators.descriptions import GroupSample, describe_groups, describe_slices
from operators.descriptions.table_views import MAX_CHARACTERS, TEXT_WORDS
from operators.encode.column_forms import holds_texts
from operators.encode.tags import is_tags
from operators.encode.texts import MISSING_TEXTS
from operators.hashing import row_hashes
from operators.unspaced_scripts import mean_words

FORMAT = 4
"""Raise it when descriptions have to be made again."""
MAX_ROWS = 24_000
ROWS_PER_GROUP = 2_000
FEATURE_ROWS_PER_GROUP = 256
FEATURE_VALUES = 2**24
"""Maximum number of feature values in memory for the central rows (64 MiB)."""
MAX_SLICES = 10
MAX_COLUMNS = 256
"""Further columns of a wider table are not named in descriptions."""
Counts = Counter[tuple[int, int]]


def descriptions_file(output: Place, version: str) -> Place:
    """Return where the descriptions of a version lie."""
    return output / "reports" / f"{version}.groups.json"


def read_descriptions(output: Place, version: str) -> dict[str, Any] | None:
    """Read the descriptions of a version; None if there are none of this format.

    Raises InputError if the file says that it has this format and has not.
    """
    file = descriptions_file(output, version)
    try:
        found: dict[str, Any] = read_json(file, root=output)
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    fault = fault_of(found)
    if fault is not None:
        raise InputError(
            f"{file}: these are not descriptions of groups as Rowsieve writes them: {fault}. Remove the file "
            f"and run the recipe again; nothing else is computed."
        )
    return found


def required_descriptions(output: Place, version: str) -> dict[str, Any]:
    """Read the descriptions of a version. Raises InputError, with the remedy, if there are none to use."""
    found = read_descriptions(output, version)
    if found is None:
        raise InputError(
            f"{descriptions_file(output, version)} is not there: the version {version} was published before "
            f"groups were described, or copied without it. Run its recipe again; nothing else is computed."
        )
    return found


def describe(plan: Plan, executor: Executor) -> dict[str, Any]:
    """Describe the groups of the plan's published version.

    Parameters
    ----------
    plan
        A plan whose version is published.
    executor
        Reads shards. Nothing row-sized passes through this process.

    Returns
    -------
    JSON-able: ``format``, ``version``, ``recipe``, ``columns`` (the source columns that a description may
    name), ``sampled_rows``, ``groups``, whose entries are those of
    ``operators.descriptions.describe_groups`` with ``share`` of the rows that are not quarantined,
    ``accuracy`` of the classifier on the group and ``class_accuracy`` (None if the chain has no classifier),
    and ``slices``, the suspected shortcuts of `cues` on entries of vectors.

    """
    reader = plan.reader()
    sizes, right = Counts(), Counts()
    rows = np.empty(0, ROW)
    for found in executor.map(partial(draw, reader, plan.recipe.seed), range(len(plan.shards))):
        sizes.update(found[0])
        right.update(found[1])
        rows = first_per_group(np.concatenate([rows, found[2]]), ROWS_PER_GROUP)[0]
    rows = first_per_group(rows, max(MAX_ROWS // max(len(sizes), 1), 1))[0]
    rows = rows[np.argsort(rows["row_id"])]
    columns = describable_columns(plan)
    table = _read(plan, rows["row_id"], columns, executor)
    features, feature_rows = _features(plan, rows, table, executor)
    sample = GroupSample(
        table=table,
        row_ids=rows["row_id"],
        y=rows["y"],
        group=rows["group"],
        sizes=sizes,
        seed=plan.recipe.seed,
        features=features,
        feature_rows=feature_rows,
        missing=_missing_texts(plan),
    )
    groups = describe_groups(sample, read_classes(plan)) if len(rows) else []
    scored = right if PREDICTION in reader.columns else None
    return {
        "format": FORMAT,
        "version": plan.version,
        "recipe": plan.recipe.name,
        "columns": columns,
        "sampled_rows": len(rows),
        "groups": _with_accuracy(groups, sizes, scored, read_classes(plan)),
        "slices": describe_slices(sample, _nameless_slices(plan)),
    }


def _missing_texts(plan: Plan) -> Sequence[str]:
    """Return the texts that stand for a missing value in the recipe."""
    encode = (planned.operator.params for planned in plan.operators if planned.name == "encode")
    return next((params.missing_values for params in encode), MISSING_TEXTS)


def _nameless_slices(plan: Plan) -> list[tuple[str, int, float]]:
    """Return the suspected slices of `cues` whose feature is an entry of a vector, with position and cut."""
    fingerprints = {planned.name: planned.fingerprint for planned in plan.operators}
    if CUES not in fingerprints:
        return []
    folder = plan.store.state(fingerprints[CUES])
    if not (folder / SUSPECTS).exists():
        return []
    suspects = read_suspects(folder)["suspects"][:MAX_SLICES]
    unnamed = [suspect for suspect in suspects if suspect["feature"].endswith("]")]
    return [
        (one["slice"], int(one["position"]), float(one.get("feature_cut", one["cut"]))) for one in unnamed
    ]


def describable_columns(plan: Plan) -> list[str]:
    """Return the source columns that a description may name.

    These are the published ones without the label, those under ``truth`` and ``source.exclude``, internal
    ones (their names begin with ``_``), vectors, bytes and structs.
    """
    source = plan.recipe.source
    apart = {source.label, *source.exclude, *plan.recipe.truth.columns}
    published = published_columns(plan.recipe, plan.listing.schema)
    fields = [field for field in published if field.name not in apart]
    usable = [f.name for f in fields if not f.name.startswith("_") and not _is_opaque(f.type)]
    return usable[:MAX_COLUMNS]


def draw(reader: StoreReader, seed: int, shard: int) -> tuple[Counts, Counts, Rows]:
    """Count a shard's valid rows by class and group, all of them and those predicted correctly; draw some."""
    small = [LABEL, GROUP, *([PREDICTION] if PREDICTION in reader.columns else [])]
    table = reader.read(shard, small)
    rows = rows_of(table, seed)
    correct = np.zeros(len(rows), np.bool_)
    if PREDICTION in small:
        correct = table.column(PREDICTION).to_numpy() == rows["y"]
    return _count(rows), _count(rows[correct]), first_per_group(rows, ROWS_PER_GROUP)[0]


def _count(rows: Rows) -> Counts:
    pairs, counts = np.unique(rows[["y", "group"]], return_counts=True)
    return Counts({(int(y), int(g)): int(n) for (y, g), n in zip(pairs, counts, strict=True)})


def _with_accuracy(
    groups: list[dict[str, Any]],
    sizes: Mapping[tuple[int, int], int],
    right: Mapping[tuple[int, int], int] | None,
    classes: Sequence[str],
) -> list[dict[str, Any]]:
    n_rows = sum(sizes.values())
    for entry in groups:
        y, group = classes.index(entry["class"]), entry["group"]
        own = [pair for pair in sizes if pair[0] == y]
        entry["share"] = sizes[y, group] / n_rows
        entry["accuracy"] = None if right is None else right.get((y, group), 0) / sizes[y, group]
        in_class = sum(sizes[pair] for pair in own)
        entry["class_accuracy"] = (
            None if right is None else sum(right.get(pair, 0) for pair in own) / in_class
        )
    return groups


def _is_opaque(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    nested = pa.types.is_nested(kind) and not is_tags(kind)
    return nested or is_binary(kind) or bool(pa.types.is_null(kind))


def _is_prose(column: pa.ChunkedArray) -> bool:
    """Return whether a column is text with at least four words on average."""
    if not holds_texts(column.type):
        return False
    texts = pc.utf8_slice_codeunits(column.cast(pa.large_string()).drop_null(), 0, MAX_CHARACTERS)
    return mean_words(texts.to_pylist()) >= TEXT_WORDS


def _features(
    plan: Plan, rows: Rows, table: pa.Table, executor: Executor
) -> tuple[NDArray[np.float32] | None, NDArray[np.int64] | None]:
    """Return features of some of the rows and their positions, where images, vectors or prose are used."""
    schema = plan.listing.schema
    used = [schema.field(name).type for name in plan.features if name in schema.names]
    made = FEATURES in plan.reader().columns and len(rows)
    if not made or not (any(map(_is_opaque, used)) or any(map(_is_prose, table.columns))):
        return None, None
    first = first_per_group(rows, FEATURE_ROWS_PER_GROUP)[0]
    width = vectors_to_numpy(_read_x(plan.reader(), first["row_id"][:1], plan, executor)).shape[1]
    hashes = row_hashes(first["row_id"], plan.recipe.seed, "descriptions/features")
    kept = np.argsort(hashes, kind="stable")[: max(FEATURE_VALUES // max(width, 1), 1)]
    ids = np.sort(first["row_id"][kept])
    return vectors_to_numpy(_read_x(plan.reader(), ids, plan, executor)), np.searchsorted(rows["row_id"], ids)


def _read_x(reader: StoreReader, ids: NDArray[np.int64], plan: Plan, executor: Executor) -> pa.ChunkedArray:
    tables = list(executor.map(partial(_features_of, reader), _by_shard(plan, ids)))
    return pa.concat_tables(tables).column(FEATURES)


def _features_of(reader: StoreReader, piece: tuple[int, NDArray[np.int64]]) -> pa.Table:
    shard, places = piece
    return reader.read_all(shard, [FEATURES]).take(pa.array(places))


def _read(plan: Plan, ids: NDArray[np.int64], columns: list[str], executor: Executor) -> pa.Table:
    """Read source columns of some rows from the published parts, in the order of the rows."""
    if not columns or not len(ids):
        return pa.table({ROW_ID: ids}).select([])
    folder = version_folder(plan.output, plan.version)
    pieces = [(*piece, columns) for piece in _by_shard(plan, ids)]
    tables = list(executor.map(partial(_columns_of, folder), pieces))
    return pa.concat_tables(tables, promote_options="default")


def _columns_of(folder: Place, piece: tuple[int, NDArray[np.int64], list[str]]) -> pa.Table:
    shard, places, columns = piece
    part = PurePath("data") / f"part-{shard:05d}.parquet"
    return read_columns(folder / str(part), columns).take(pa.array(places)).unify_dictionaries()


def _by_shard(plan: Plan, ids: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Return the shards that hold some rows, with the rows' positions in them. ``ids`` are increasing."""
    found = []
    for info in plan.shards:
        start, stop = np.searchsorted(ids, [info.first_row, info.first_row + info.n_rows])
        if stop > start:
            found.append((info.index, ids[start:stop] - info.first_row))
    return found
