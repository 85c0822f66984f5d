"""Facts that the operators of a published version record of one row, for ``rowsieve explain``."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from connectors.storage import find_column, read_columns
from engine.core.errors import InputError
from engine.core.json_files import read_key
from engine.core.suggestions import explain as explain_params
from engine.execution.quarantine import read_records
from engine.plan.chain import CONTRACT, resolve_chain
from engine.storage.run_store import RunStore
from engine.storage.state_files import check_state
from engine.storage.stores import store_of
from engine.training.data.version import Version
from operators.base import ROW_ID, VALID, Context, Operator, OperatorError
from operators.explanations import ExplainedRow, Fact, shown
from operators.ingest.adaptor import STATE
from operators.registry import operator_class
from operators.values import python_rows

_log = logging.getLogger("rowsieve")


@dataclass(frozen=True)
class OperatorFacts:
    """The facts of one operator about the row."""

    operator: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Everything that is known of one row of a version."""

    version: str
    row_id: int
    path: str
    shard: int
    row: int
    """Position within the rows of the shard, from 0."""
    source: Mapping[str, Any]
    """Values of the source's columns."""
    published: Mapping[str, Any]
    """Values of the columns that Rowsieve published."""
    operators: tuple[OperatorFacts, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON-able values; lists and bytes are summarised."""
        return {
            "version": self.version,
            "row_id": self.row_id,
            "path": self.path,
            "shard": self.shard,
            "row": self.row,
            "source": {name: shown(value) for name, value in self.source.items()},
            "published": {name: shown(value) for name, value in self.published.items()},
            "operators": [
                {"operator": one.operator, "facts": [asdict(fact) for fact in one.facts]}
                for one in self.operators
            ],
        }


def explain(version: Version, row_id: int) -> Explanation:
    """Collect the facts that every operator recorded about a row.

    Parameters
    ----------
    version
        A published version. Facts whose files the run store no longer has are left out.
    row_id
        The row's id.

    Raises
    ------
    InputError
        The version has no such row, or an operator of it is not installed.

    """
    shard = _shard_of(version, row_id)
    first = version.manifest["source"]["shards"][shard]["first_row"]
    place = row_id - first
    part = version.folder / version.manifest["parts"][shard]["path"]
    published = read_columns(part).slice(place, 1)
    chain = rebuilt_chain(version)
    store = store_of(version.output)
    fingerprints = {entry["name"]: entry["fingerprint"] for entry in version.manifest["operators"]}
    table = _sidecars(store, chain, fingerprints, shard, place, row_id)
    row = ExplainedRow(row_id, shard, table, _classes(store, fingerprints))
    rowsieve_columns = {version.prefix + field.name for field in CONTRACT}
    rowsieve_columns |= {version.prefix + field.name for operator in chain for field in operator.publishes}
    values = python_rows(published)[0]
    return Explanation(
        version=version.name,
        row_id=row_id,
        path=version.manifest["source"]["shards"][shard]["path"],
        shard=shard,
        row=place,
        source={name: value for name, value in values.items() if name not in rowsieve_columns},
        published={name: value for name, value in values.items() if name in rowsieve_columns},
        operators=tuple(_facts(version, store, operator, fingerprints, row) for operator in chain),
    )


def rebuilt_chain(version: Version) -> list[Operator[Any]]:
    """Return the operators of a version as its run used them. Raises InputError for one that is missing."""
    chain: list[Operator[Any]] = []
    for entry in version.manifest["operators"]:
        try:
            kind = operator_class(entry["name"]).variant(entry["params"])
        except (KeyError, OperatorError) as error:
            raise InputError(
                f"The version {version.name} was made with the operator {entry['name']!r}, which is not "
                f"installed here ({error}). Install the package that provides it."
            ) from None
        try:
            chain.append(kind(kind.Params.recorded(entry["params"])))
        except ValidationError as error:
            raise InputError(
                explain_params(error, kind.Params, f"the operator {entry['name']!r} in {version.name}")
            ) from None
    return resolve_chain(chain)


def _shard_of(version: Version, row_id: int) -> int:
    rows = int(version.manifest["rows"])
    if not 0 <= row_id < rows:
        ids = f"rows are 0 to {rows - 1:,}" if rows else "it has no rows"
        raise InputError(f"There is no row {row_id} in the version {version.name}: {ids}.")
    shards = version.manifest["source"]["shards"]
    filled = [index for index, shard in enumerate(shards) if shard["rows"]]
    firsts = [shards[index]["first_row"] for index in filled]
    return filled[bisect_right(firsts, row_id) - 1]


def _sidecars(
    store: RunStore,
    chain: Sequence[Operator[Any]],
    fingerprints: Mapping[str, str],
    shard: int,
    place: int,
    row_id: int,
) -> pa.Table:
    """Return one row with the columns that the run store has; null where an operator set the row aside."""
    columns: dict[str, Any] = {ROW_ID: pa.array([row_id], pa.int64())}
    kept = True
    for operator in chain:
        part = store.part(fingerprints[operator.name], shard)
        if not part.exists():
            continue
        found = read_columns(part).slice(place, 1)
        columns.update((name, found.column(name)) for name in found.column_names)
        valid = find_column(part, VALID)
        kept = kept and (valid is None or bool(valid[place].as_py()))
    if VALID in columns:
        columns[VALID] = pa.array([kept])
    return pa.table(columns)


def _classes(store: RunStore, fingerprints: Mapping[str, str]) -> list[str]:
    folder = store.state(fingerprints["ingest"])
    store.ensure_local([folder])
    path = folder / STATE
    return [str(name) for name in read_key(path, "classes", list)] if path.exists() else []


def _facts(
    version: Version,
    store: RunStore,
    operator: Operator[Any],
    fingerprints: Mapping[str, str],
    row: ExplainedRow,
) -> OperatorFacts:
    """Ask an operator for its facts. An error becomes a fact, so that the facts of the others are shown."""
    states = {name: store.state(fingerprints[name]) for name in operator.uses if name in fingerprints}
    state = store.state(fingerprints[operator.name])
    store.ensure_local([state, *states.values()])
    for folder in (state, *states.values()):
        check_state(folder)
    context = Context(version.reader(), Path(state), states, int(version.manifest["seed"]))
    reasons = _quarantine_reasons(store, fingerprints[operator.name], row)
    try:
        facts = operator.explain(context, row)
    except Exception as error:
        _log.debug("explain of %s failed", operator.name, exc_info=True)
        facts = [Fact("error", None, _why(version, operator, error))]
    return OperatorFacts(operator.name, (*facts, *reasons))


def _why(version: Version, operator: Operator[Any], error: Exception) -> str:
    """Say why an operator could not explain a row: its state may be that of another version of it."""
    text = f"{type(error).__name__}: {error}"
    made = next(entry["version"] for entry in version.manifest["operators"] if entry["name"] == operator.name)
    if made == operator.version:
        return text
    return (
        f"made by version {made} of the operator, which version {operator.version}, installed here, cannot "
        f"explain ({text}); run the recipe again"
    )


def _quarantine_reasons(store: RunStore, fingerprint: str, row: ExplainedRow) -> list[Fact]:
    """Return why an operator set the row aside, if it did."""
    path = store.quarantine(fingerprint, row.shard)
    if not path.exists():
        return []
    found = read_records(path)
    mine = found.filter(pc.equal(found.column(ROW_ID), row.row_id)).to_pylist()
    reasons = [f"column {e['column']!r} {e['error']} (value: {e['value']})" for e in mine]
    return [Fact("set aside", True, reason) for reason in reasons]
