"""The plan: the immutable input of a run, with shards, operators, fingerprints and the version's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from connectors.base import Listing, Source
from connectors.files import local_folder
from connectors.foundation.immutable import FrozenDict
from connectors.foundation.messages import first_of
from connectors.storage import Place
from engine.core.output_layout import output_of
from engine.core.redaction import redact, redact_all
from engine.plan.chain import CONTRACT, DESCRIPTIONS
from engine.plan.increment import Increment, PlannedOperator, manifest_entry
from engine.plan.sources import READ_SUFFIX, published_columns
from engine.recipe.recipe import Recipe
from engine.storage.reader import StoreReader
from engine.storage.run_store import RunStore
from engine.storage.stores import store_of
from engine.storage.version_inputs import Inputs, inputs_of
from operators.base import PART, VALID, OperatorError, ShardInfo
from operators.counts import count
from operators.parts.adaptor import NAME as PARTS

__all__ = ["Plan", "PlannedOperator"]
MAX_NAMED_FILES = 5
"""Files that cannot be read and are named in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a run needs to know. ``version`` names the version that it publishes.

    Nothing within a plan can be changed, at any depth, also after it was pickled for a worker.
    """

    recipe: Recipe
    source: Source
    listing: Listing
    features: tuple[str, ...]
    operators: tuple[PlannedOperator, ...]
    fingerprint: str
    version: str
    learnt_from: str = ""
    """Sentence that says which rows operators learn from."""
    increment: Increment | None = None
    """Continuation from a base version; None if the plan depends on its input only."""

    @cached_property
    def shards(self) -> tuple[ShardInfo, ...]:
        """The shards with their dense row ids."""
        infos, first = [], 0
        for index, shard in enumerate(self.listing.shards):
            # Without the settings of reading, which are part of the listing's identity.
            identity = self.listing.identities[shard.path].partition(READ_SUFFIX)[0]
            folder = str(local_folder(shard.path) or "")
            infos.append(
                ShardInfo(
                    index=index,
                    path=shard.path,
                    first_row=first,
                    n_rows=shard.n_rows,
                    file_row=shard.file_row,
                    identity=identity,
                    folder=folder,
                )
            )
            first += shard.n_rows
        return tuple(infos)

    @property
    def output(self) -> Place:
        """The output: an absolute folder, or a prefix of an object store."""
        return output_of(self.recipe.output.path)

    @property
    def n_rows(self) -> int:
        """The number of rows of all shards."""
        return sum(shard.n_rows for shard in self.listing.shards)

    @cached_property
    def store(self) -> RunStore:
        """The run store of the output. Its paths are absolute: workers have other working directories."""
        return store_of(self.output)

    @property
    def extra_columns(self) -> tuple[pa.Field, ...]:
        """Columns that operators publish in addition to the contract's, such as ``fold``."""
        return tuple(field for planned in self.operators for field in planned.operator.publishes)

    @cached_property
    def published_schema(self) -> pa.Schema:
        """The published columns: those of the source, the contract columns, and those of operators."""
        prefix = self.recipe.output.prefix
        ours = (*CONTRACT, *self.extra_columns)
        fields = [pa.field(prefix + field.name, field.type) for field in ours]
        return pa.schema([*published_columns(self.recipe, self.listing.schema), *fields])

    @property
    def outputs(self) -> list[dict[str, str]]:
        """The published columns that are not the source's: name, type, operator and description."""
        adder = {field.name: planned.name for planned in self.operators for field in planned.operator.adds}
        prefix = self.recipe.output.prefix
        return [
            {
                "name": prefix + field.name,
                "type": str(field.type),
                "operator": adder.get(field.name, ""),
                "description": _description(field),
            }
            for field in (*CONTRACT, *self.extra_columns)
        ]

    def fingerprint_of(self, name: str) -> str:
        """Return the fingerprint of the named operator. Raises KeyError if the plan has no such operator."""
        return {planned.name: planned.fingerprint for planned in self.operators}[name]

    def reader(self, planned: PlannedOperator | None = None, *, fitting: bool = False) -> StoreReader:
        """Return the reader of one operator, which may be allowed to read truth columns, or of the engine.

        ``fitting``: leave out the rows that the recipe holds out.
        """
        columns = FrozenDict(
            (field.name, planned.fingerprint) for planned in self.operators for field in planned.operator.adds
        )
        hidden = frozenset(self.recipe.truth.columns)
        if planned is not None:
            hidden = hidden.difference(planned.operator.oracle_columns)
        read = columns if planned is None else planned.operator.requires
        validity = tuple(sorted({columns[name] for name in read} - {columns.get(VALID), columns.get(PART)}))
        source, shards = self.source, self.listing.shards
        return StoreReader(
            source=source,
            source_shards=shards,
            schema=self.listing.schema,
            shards=self.shards,
            store=self.store,
            columns=columns,
            hidden=hidden,
            validity_sources=validity,
            parts="" if planned is not None and planned.name == PARTS else columns.get(PART, ""),
            fitting=fitting,
        )

    @property
    def skipped_files(self) -> tuple[str, ...]:
        """A sentence that names the files that cannot be read and are left out; empty without any."""
        skipped = [redact(path) for path in sorted(self.listing.skipped)]
        if not skipped:
            return ()
        files = f"{count(len(skipped), 'file')} left out, as reading failed"
        named = first_of(skipped, MAX_NAMED_FILES)
        return (f"source.on_corrupt is skip: {files}: {named}. The manifest has the reasons.",)

    def warnings(self) -> list[str]:
        """Return which files are left out, and what fitted operators warn of with the operator's key."""
        found = [*self.skipped_files]
        for planned in self.operators:
            found += [f"operators.{planned.name}: {text}" for text in self._warnings_of(planned)]
        return found

    def _warnings_of(self, planned: PlannedOperator) -> Sequence[str]:
        """Return the warnings of an operator; none before it is fitted."""
        fitted = self.store.fitted(planned.fingerprint)
        if fitted is None:
            return ()
        try:
            return planned.operator.warnings(
                fitted["metrics"], partial(self.store.state, planned.fingerprint)
            )
        except (OperatorError, OSError) as error:  # the state is damaged, or not there
            return (f"its warnings cannot be read: {error}",)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-able values without secrets."""
        record: dict[str, Any] = redact_all(self._record())
        return record

    @cached_property
    def inputs(self) -> Inputs:
        """Rows and recipe of the version, as its manifest will have them."""
        record, spec = self.to_dict(), self.recipe.source
        source = {
            **{key: record[key] for key in ("files", "shards")},
            "features": list(self.features),
            "label": spec.label,
            "on_corrupt": spec.on_corrupt,
        }
        return inputs_of(record | {"seed": self.recipe.seed, "source": source, "outputs": self.outputs})

    def _record(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "fingerprint": self.fingerprint,
            "rows": self.n_rows,
            "learnt_from": self.learnt_from,
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
                    **manifest_entry(planned),
                    "adds": [{"name": f.name, "type": str(f.type)} for f in planned.operator.adds],
                    "fingerprint": planned.fingerprint,
                }
                for planned in self.operators
            ],
            **({"incremental": self.increment.record()} if self.increment else {}),
        }


def _description(field: pa.Field) -> str:
    """Return the description of a published column; empty if its operator gives none."""
    own = (field.metadata or {}).get(b"description", b"").decode()
    return own or DESCRIPTIONS.get(field.name, "")
