"""Taking over from the base: parts of shards that were there, byte for byte, under the new fingerprint."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from connectors.sink import write_parquet
from connectors.storage import Place, link, make_folder, read_columns
from engine.core.json_files import write_json
from operators.base import ROW_ID, DatasetDelta

if TYPE_CHECKING:
    from engine.plan.model import Plan, PlannedOperator


def delta_of(plan: Plan, planned: PlannedOperator) -> DatasetDelta:
    """What a kept operator is told of the dataset. Raises KeyError where it is not kept."""
    found, kept = plan.increment, planned.kept
    if found is None or not kept:
        raise KeyError(planned.name)
    fitted = plan.store.fitted(kept) or {"metrics": {}}
    fresh = tuple(range(len(found.matching.old), len(found.matching.order)))
    return DatasetDelta(plan.store.state(kept), fitted["metrics"], fresh, bool(found.matching.gone))


def adopt(plan: Plan, planned: PlannedOperator) -> int:
    """Link the base's parts and quarantine files, then commit them; return how many parts are new here.

    Nothing is computed, or copied where the filesystem can link. Parts hold no row ids, so that they stay
    right where rows are gone; quarantine files do, and are written again then.
    """
    found, store, kept = plan.increment, plan.store, planned.kept
    if found is None or not kept or planned.operator.partial_fit_changes_rows:
        return 0
    theirs, mine = store.committed(kept), store.committed(planned.fingerprint)
    before = found.manifest["source"]["shards"]
    adopted = 0
    for shard, old in enumerate(found.matching.old):
        if shard in mine:
            continue
        commit = replace(theirs[old], shard=shard)
        part = store.part(planned.fingerprint, shard)
        make_folder(part.parent)
        link(store.part(kept, old), part)
        if commit.quarantined or commit.skipped:
            moved = plan.shards[shard].first_row - int(before[old]["first_row"])
            _quarantine(store.quarantine(kept, old), store.quarantine(planned.fingerprint, shard), moved)
        write_json(part.with_suffix(".json"), asdict(commit))
        adopted += 1
    return adopted


def _quarantine(source: Place, target: Place, moved: int) -> None:
    if not moved:
        link(source, target)
        return
    table = read_columns(source)
    ids = pc.add(table.column(ROW_ID), pa.scalar(moved, pa.int64()))
    write_parquet(table.set_column(table.column_names.index(ROW_ID), ROW_ID, ids), target)
