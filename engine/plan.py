"""The plan: a recipe with everything decided. Shards frozen, columns composed, fingerprints computed.

Planning reads file listings, footers and (for text formats) the bytes once to count rows; it never
starts Ray and holds nothing row-sized.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from connectors.base import ConnectorError, Listing, Source
from connectors.storage import Place
from engine.chain import CONTRACT, compose, in_order, settled, wants_verdict
from engine.errors import InputError
from engine.hints import explain, nearest
from engine.increments.planning import Increment
from engine.reader import StoreReader
from engine.recipe import Recipe
from engine.redaction import redact_all
from engine.store import RunStore, output_of, store_of
from operators.base import FEATURES, VALID, Operator, OperatorError, ShardInfo
from operators.factories import check_allowed
from operators.registry import operator_class, operator_names

FORMAT = 1
"""Raise it when the layout of published files changes."""


@dataclass(frozen=True)
class PlannedOperator:
    """One operator with its place in the chain."""

    operator: Operator[Any]
    fingerprint: str
    kept: str = ""
    """Fingerprint of the base version's operator whose state and sidecars this one goes on from."""
    files: tuple[str, ...] = ()
    """Identities of the files it reads beside the source."""

    @property
    def name(self) -> str:
        """Name in the recipe."""
        return self.operator.name

    @property
    def params(self) -> dict[str, Any]:
        """Parameters that decide values; those that only say where to run are left out."""
        params = self.operator.params
        found: dict[str, Any] = params.model_dump(mode="json", exclude=set(params.execution_only))
        return found


@dataclass(frozen=True)
class Plan:
    """Frozen input of a run. ``version`` names what it publishes."""

    recipe: Recipe
    source: Source
    listing: Listing
    features: tuple[str, ...]
    operators: tuple[PlannedOperator, ...]
    fingerprint: str
    version: str
    increment: Increment | None = None
    """How it goes on from its base version; None: it depends on nothing but its input."""

    @cached_property
    def shards(self) -> tuple[ShardInfo, ...]:
        """Shards with their dense row ids."""
        infos, first = [], 0
        for index, shard in enumerate(self.listing.shards):
            infos.append(ShardInfo(index, shard.path, first, shard.n_rows, shard.file_row))
            first += shard.n_rows
        return tuple(infos)

    @property
    def output(self) -> Place:
        """The output folder, absolute; or a prefix of an object store."""
        return output_of(self.recipe.output.path)

    @property
    def n_rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.n_rows for shard in self.listing.shards)

    @cached_property
    def store(self) -> RunStore:
        """Run store of this plan's output; absolute, since workers have working directories of their own."""
        return store_of(self.output)

    @cached_property
    def published_schema(self) -> pa.Schema:
        """Source columns that are kept, then the contract's."""
        from engine.sources import published_columns

        prefix = self.recipe.output.prefix
        fields = [pa.field(prefix + field.name, field.type) for field in CONTRACT]
        return pa.schema([*published_columns(self.recipe, self.listing.schema), *fields])

    def fingerprint_of(self, name: str) -> str:
        """Fingerprint of the named operator. Raises KeyError."""
        return next(planned.fingerprint for planned in self.operators if planned.name == name)

    def reader(self, planned: PlannedOperator | None = None) -> StoreReader:
        """What operators read; ``planned`` may be one that the recipe lets read a column of the truth."""
        columns = {
            field.name: planned.fingerprint for planned in self.operators for field in planned.operator.adds
        }
        hidden = frozenset(self.recipe.truth.columns)
        if planned is not None:
            hidden = hidden.difference(planned.operator.oracle_columns)
        read = columns if planned is None else planned.operator.requires
        gates = tuple(sorted({columns[name] for name in read} - {columns.get(VALID)}))
        source, shards = self.source, self.listing.shards
        return StoreReader(
            source, shards, self.listing.schema, self.shards, self.store, columns, hidden, gates
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able record of the plan, without secrets."""
        record: dict[str, Any] = redact_all(self._record())
        return record

    def _record(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "fingerprint": self.fingerprint,
            "rows": self.n_rows,
            "features": list(self.features),
            "schema": [{"name": f.name, "type": str(f.type)} for f in self.published_schema],
            "shards": [
                {"path": s.path, "first_row": i.first_row, "rows": s.n_rows, "range": [s.start, s.stop]}
                for s, i in zip(self.listing.shards, self.shards, strict=True)
            ],
            "files": self.listing.identities,
            "skipped": self.listing.skipped,
            "operators": [
                {
                    "name": planned.name,
                    "version": planned.operator.version,
                    "params": planned.params,
                    "requires": list(planned.operator.requires),
                    "files": list(planned.files),
                    "adds": [{"name": f.name, "type": str(f.type)} for f in planned.operator.adds],
                    "fingerprint": planned.fingerprint,
                }
                for planned in self.operators
            ],
            **({"incremental": self.increment.record()} if self.increment else {}),
        }


def make_plan(recipe: Recipe) -> Plan:
    """Decide everything a run needs. Raises InputError for a recipe or source that cannot be used."""
    # Not at the top: it imports plans.
    from engine.export import open_exports
    from engine.freezing import freeze, unprinted
    from engine.sources import check_source_columns, list_source, resolve_features

    open_exports(recipe.output.export)  # a library that is missing is said before anything runs
    chain = [build_operator(recipe, name, params) for name, params in recipe.operators.items()]
    maker = next((o for o in chain if any(field.name == FEATURES for field in o.adds)), None)
    try:
        source, listing = list_source(recipe)
    except ConnectorError as error:
        raise InputError(str(error)) from None
    features = resolve_features(recipe, listing.schema, maker.name if maker else "")
    check_source_columns(chain, recipe, listing.schema)
    check_contract_names(recipe, listing.schema)
    chain = [build_operator(recipe, "ingest", _ingest_params(recipe, features)), *chain]
    if wants_verdict(chain):
        chain.append(build_operator(recipe, "outliers", {}))
    chain = in_order(settled(chain))
    features = features or (maker.source_columns if maker else ())
    compose(chain)
    return freeze(Plan(recipe, source, listing, features, unprinted(recipe, chain), "", ""))


def build_operator(recipe: Recipe, name: str, params: dict[str, Any]) -> Operator[Any]:
    """Look an operator up and check its parameters. Raises InputError with the nearest match."""
    try:
        kind = operator_class(name)
    except KeyError:
        hint = nearest(name, operator_names()) or f" Known operators: {', '.join(operator_names())}."
        raise InputError(f"operators.{name}: there is no such operator.{hint}") from None
    if name == "ingest" and "ingest" in recipe.operators:
        raise InputError("operators.ingest: always runs first; set its options under `source`.")
    try:
        kind = kind.variant(params)
        checked = kind.Params.model_validate(params)
        model = getattr(checked, "model", None)
        if isinstance(model, str) and ":" in model:
            check_allowed(model, f"operators.{name}.model")
        return kind(checked)
    except OperatorError as error:
        raise InputError(str(error)) from None
    except ValidationError as error:
        raise InputError(explain(error, kind.Params, recipe.place, prefix=f"operators.{name}.")) from None


def check_contract_names(recipe: Recipe, schema: pa.Schema) -> None:
    """Refuse a source column that has the name of one of ours."""
    prefix = recipe.output.prefix
    taken = [prefix + field.name for field in CONTRACT if prefix + field.name in schema.names]
    if taken:
        raise InputError(
            f"The source already has a column named {taken[0]!r}, which Winnow adds. Keep both with "
            f"--set output.prefix=winnow_ (our columns are then winnow_row_id, winnow_group, ...)."
        )


def _ingest_params(recipe: Recipe, features: tuple[str, ...]) -> dict[str, Any]:
    source = recipe.source
    return {
        "label": source.label,
        "features": features or None,
        "classes": source.classes,
        "on_error": source.on_error,
        "max_error_rate": source.max_error_rate,
    }
