"""The plan: a recipe with everything decided. Shards listed, columns composed, fingerprints computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from connectors.base import Listing, Source
from connectors.storage import Place
from engine.core.output_layout import output_of
from engine.core.redaction import redact_all
from engine.plan.chain import CONTRACT
from engine.plan.increment import Increment
from engine.recipe.recipe import Recipe
from engine.storage.reader import StoreReader
from engine.storage.run_store import RunStore
from engine.storage.stores import store_of
from operators.base import VALID, Operator, ShardInfo


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

    @property
    def extra_columns(self) -> tuple[pa.Field, ...]:
        """Columns that operators publish beside the contract's, such as ``fold``."""
        return tuple(field for planned in self.operators for field in planned.operator.publishes)

    @cached_property
    def published_schema(self) -> pa.Schema:
        """Source columns that are kept, the contract's, then those that operators publish beside them."""
        from engine.plan.sources import published_columns

        prefix = self.recipe.output.prefix
        ours = (*CONTRACT, *self.extra_columns)
        fields = [pa.field(prefix + field.name, field.type) for field in ours]
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
