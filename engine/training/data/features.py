"""Features and labels of a published version's rows, made by the operators of the run that published it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.storage import read_columns
from engine.core.json_files import read_key
from engine.training.data.rows import (
    SPLITS,
    CachedShards,
    Dataset,
    GroupedRows,
    Noise,
    group_indices,
    group_names,
)
from engine.training.data.version import Version, VersionReader
from operators.arrays import Float64, Int64
from operators.base import (
    FEATURES,
    GROUP,
    LABEL,
    ROW_ID,
    SPLIT,
    VALID,
    WEIGHT,
    Apply,
    Context,
    Executor,
    Operator,
    OperatorError,
    copy_state,
)
from operators.columns import vectors_to_numpy
from operators.embed.network_inputs import NAME, NetworkInputs, NetworkInputsParams
from operators.ingest.adaptor import STATE
from operators.registry import operator_class

Reweighting: TypeAlias = Callable[[GroupedRows, tuple[int, ...]], GroupedRows]
CACHE_BYTES = 512 * 2**20
"""Features that one worker keeps in memory between epochs; the rest is read again."""


MADE_HERE = ("ingest", NAME)
"""Operators whose columns and state no run store has."""


@dataclass(frozen=True)
class FeatureMaker:
    """Makes ``x`` and ``y`` from the published columns of a part. Picklable.

    Where another operator than ``ingest`` makes the features, such as ``embed``, what it left in the run
    store is read if it is still there; a version without its store has it made again.
    """

    reader: VersionReader
    state: Path
    """Holds ingest's ``classes.json``, and the state of what makes the features."""
    inputs: NetworkInputsParams | None = None
    """Makes the inputs of a pretrained network, in place of the run's features."""

    @cached_property
    def operators(self) -> list[Operator[Any]]:
        """``ingest``, and before it the operator that makes the features where one does."""
        found = []
        for entry in self.reader.manifest["operators"]:
            params = dict(entry["params"])
            if entry["name"] == "ingest":
                # The run has checked the rows: those that it quarantined have the split `dropped`.
                params["on_error"] = "quarantine"
                params["features"] = params.get("features") if self.inputs is None else None
            kind = operator_class(entry["name"]).variant(params)
            operator = kind(kind.Params.recorded(params))
            if any(field.name in (FEATURES, LABEL) for field in operator.adds):
                found.append(operator)
        if self.inputs is not None:
            found = [NetworkInputs(self.inputs), *(o for o in found if o.name == "ingest")]
        return sorted(found, key=lambda operator: operator.name == "ingest")

    def fit(self, executor: Executor) -> None:
        """Learn classes and widths from the version's columns, and provide the state of the encoder.

        The state of the operator that makes the features is that of the run, which an incremental run may
        have fitted on earlier rows. A version without its store has it fitted on its own rows.
        """
        self.state.mkdir(parents=True, exist_ok=True)
        everything = self.reader if self.reader.held_out_splits else None
        context = replace(self._context, shards=replace(self.reader, fitting=True), all_shards=everything)
        for operator in self.operators:
            stored = self.reader.stored_state(operator.name) if operator.name not in MADE_HERE else None
            if stored is None:
                operator.fit(context, executor)
            else:
                copy_state(stored, self.state)

    @property
    def classes(self) -> list[Any]:
        """Labels in the order of their class indices."""
        found: list[Any] = read_key(self.state / STATE, "classes", list)
        return found

    @property
    def widths(self) -> tuple[int, ...]:
        """Lengths of the vectors among the features, 1 for each other one; empty for one vector of all."""
        if any(operator.name == "encode" for operator in self.operators):
            from operators.encoded_features import blocks

            return tuple(blocks(self.state))
        return tuple(read_key(self.state / STATE, "widths", list))

    @property
    def n_features(self) -> int:
        """Width of ``x``: the sum of ``widths``, or as found in the first part with rows."""
        if self.widths:
            return sum(self.widths)
        for shard in range(len(self.reader.shards)):
            width = int(self.read(shard, ())[1].shape[1])
            if width:
                return width
        return 0

    def read(self, shard: int, columns: Sequence[str]) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """Return a shard's usable rows (``row_id``, ``y``, published columns) and features (n, d) float32."""
        source = self.reader.read_source(shard, list(dict.fromkeys([*self._source_columns, *columns])))
        first = self.reader.shards[shard].first_row
        found = {ROW_ID: pa.chunked_array([np.arange(first, first + source.num_rows, dtype=np.int64)])}
        found |= {name: source.column(name) for name in columns}
        for operator in self.operators:
            made = self._stored(operator, shard)
            if made is None:
                made = self._made(operator, _input(operator, source, found), shard)
            found |= {name: made.column(name) for name in made.column_names}
        table = pa.table(found)
        table = table.filter(table.column(VALID))
        return table, vectors_to_numpy(table.column(FEATURES))

    def _stored(self, operator: Operator[Any], shard: int) -> pa.Table | None:
        path = self.reader.stored(shard, operator.name) if operator.name not in MADE_HERE else None
        return None if path is None else read_columns(path)

    def _made(self, operator: Operator[Any], table: pa.Table, shard: int) -> pa.Table:
        """Return the operator's columns as the run made them: held-out rows are placed as new rows are."""
        if not self.reader.held_out_splits or not operator.learns_from_rows:
            return self._opened[operator.name, False](table)
        held_out = self.reader.held_out(shard)
        found = [
            self._opened[operator.name, new](table.filter(pa.array(held_out == new))) for new in (False, True)
        ]
        order = np.argsort(np.concatenate([np.flatnonzero(~held_out), np.flatnonzero(held_out)]))
        return pa.concat_tables(found).unify_dictionaries().combine_chunks().take(pa.array(order))

    @cached_property
    def _opened(self) -> _OpenOperators:
        return _OpenOperators(self.operators, self._context)

    @property
    def _context(self) -> Context:
        return Context(self.reader, self.state, seed=int(self.reader.manifest.get("seed", 0)))

    @property
    def _source_columns(self) -> list[str]:
        return [name for operator in self.operators for name in operator.source_columns]


def _input(operator: Operator[Any], source: pa.Table, found: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """Return the input that a run gives an operator: row ids, its source columns, and its required columns.

    A source column may have the name of a column that an operator makes, such as ``y``.
    """
    columns = {ROW_ID: found[ROW_ID], **{name: source.column(name) for name in operator.source_columns}}
    return pa.table({**columns, **{name: found[name] for name in operator.requires}})


class _OpenOperators(dict[tuple[str, bool], Apply]):
    """(operator, whether rows are new) -> its function, opened at the first use.

    An operator whose columns the run store still has is therefore never opened.
    """

    def __init__(self, operators: Sequence[Operator[Any]], context: Context) -> None:
        super().__init__()
        self._operators, self._context = {operator.name: operator for operator in operators}, context

    def __missing__(self, key: tuple[str, bool]) -> Apply:
        name, new_rows = key
        operator = self._operators[name]
        self[key] = (operator.open_for_new_rows if new_rows else operator.open)(self._context)
        return self[key]


@dataclass
class SplitRows:
    """Rows of one split of a version, by shard."""

    maker: FeatureMaker
    prefix: str
    split: str
    names: tuple[int, ...]
    noise: Noise
    reweigh: Reweighting | None = None
    """Gives the rows other weights than the published ones."""
    target: str | None = None
    """Published column that a regression predicts."""

    def __len__(self) -> int:
        return len(self.maker.reader.shards)

    def __getitem__(self, shard: int, /) -> GroupedRows:
        ours = {name: self.prefix + name for name in (GROUP, WEIGHT, SPLIT)}
        table, x = self.maker.read(shard, list(ours.values()))
        mine = pc.equal(table.column(ours[SPLIT]).cast(pa.string()), self.split).to_numpy()
        y = table.column(LABEL).to_numpy().astype(np.int64)
        group = table.column(ours[GROUP]).to_numpy().astype(np.int64)
        if self.split == "train" and self.noise == "drop":
            mine = mine & (group >= 0)
        indices = group_indices(group, y, self.names, self.noise)
        weight = table.column(ours[WEIGHT]).to_numpy().astype(np.float64)
        rows = GroupedRows(x, y, weight, indices, table.column(ROW_ID).to_numpy()).take(np.flatnonzero(mine))
        if self.target is not None:
            rows = replace(rows, target=target_of(self.maker.reader, self.target, shard, rows.row_id))
        return rows if self.reweigh is None else self.reweigh(rows, self.names)


def target_of(reader: VersionReader, column: str, shard: int, row_ids: Int64) -> Float64:
    """Return a column's numbers (n,) of some rows of a shard.

    Raises OperatorError, which names the file, a row and its value, where one has no finite number.
    """
    info = reader.shards[shard]
    stored = reader.read_source(shard, [column]).column(column)
    taken = stored.take(pa.array(row_ids - info.first_row))
    numbers = taken.cast(pa.float64(), safe=False)  # whole numbers beyond 2^53 are rounded
    found: Float64 = numbers.fill_null(np.nan).to_numpy().astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        raise OperatorError(
            f"train.target {column!r}: {len(bad)} of {len(found)} rows of {info.path} have no finite number, "
            f"the first at row_id {int(row_ids[bad[0]])} (value: {taken[int(bad[0])].as_py()}). Fill them in "
            f"at the source, or leave such rows out by source.filter."
        )
    return found


def dataset_of_version(
    version: Version,
    maker: FeatureMaker,
    noise: Noise,
    reweigh: Reweighting | None = None,
    target: str | None = None,
) -> Dataset:
    """Return the version's three splits, read part by part.

    ``maker`` must be fitted. ``reweigh`` takes rows and the names of their groups, and returns the rows with
    other weights; default: the published ones. ``target`` is the column that a regression predicts.
    """
    numbers = [int(number) for number in version.manifest["summary"]["groups"]]
    classes = tuple(str(label) for label in maker.classes)
    names = group_names(numbers, len(classes), noise)
    budget = [CACHE_BYTES]
    splits = {
        name: CachedShards(
            SplitRows(
                maker=maker,
                prefix=version.prefix,
                split=name,
                names=names,
                noise=noise,
                reweigh=reweigh,
                target=target,
            ),
            budget,
        )
        for name in SPLITS
    }
    widths = maker.widths or (maker.n_features,)
    return Dataset(splits, names, sum(widths), len(classes), widths, classes)
