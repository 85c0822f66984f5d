"""Reuse of the base version in an incremental run: its parts are linked under the new fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from connectors.sink import write_parquet
from connectors.storage import MAX_REQUESTS, ObjectPath, Place, link, make_folder, read_columns
from engine.core.json_files import write_json
from engine.core.redaction import redact
from engine.execution.quarantine import with_file
from engine.plan.model import Plan, PlannedOperator
from engine.storage.run_store import Commit
from engine.storage.state_files import check_state
from operators.base import ROW_ID, DatasetDelta


def delta_of(plan: Plan, planned: PlannedOperator) -> DatasetDelta:
    """Return how the dataset has changed for an operator that keeps its state.

    Raises KeyError if the operator does not keep it, and InputError if the state must not be read; see
    ``check_state``.
    """
    increment, kept = plan.increment, planned.kept
    if increment is None or not kept:
        raise KeyError(planned.name)
    fitted = plan.store.fitted(kept) or {"metrics": {}}
    new_shards = tuple(range(len(increment.matching.old), len(increment.matching.order)))
    state = plan.store.state(kept)
    check_state(state)
    return DatasetDelta(state, fitted["metrics"], new_shards, bool(increment.matching.gone))


def reuse_base_parts(plan: Plan, planned: PlannedOperator) -> int:
    """Link the base's parts and quarantine files, then commit them. Returns the number of parts linked.

    Nothing is computed, and nothing is copied if the filesystem can link. Parts hold no row ids, so they stay
    valid if rows before them are gone. Quarantine files hold row ids and names of files, and are rewritten in
    that case and where a file was renamed.
    """
    increment, store, kept = plan.increment, plan.store, planned.kept
    if increment is None or not kept or planned.operator.partial_fit_changes_rows:
        return 0
    base_commits, commits = store.committed(kept), store.committed(planned.fingerprint)
    missing = [pair for pair in enumerate(increment.matching.old) if pair[0] not in commits]
    if not missing:
        return 0
    make_folder(store.folder(planned.fingerprint), root=plan.output)
    work = partial(_reuse_part, plan, planned, base_commits)
    if isinstance(plan.output, ObjectPath):  # a copy is a request, for whose answer the others need not wait
        with ThreadPoolExecutor(MAX_REQUESTS) as pool:
            list(pool.map(work, missing))
    else:
        for pair in missing:
            work(pair)
    return len(missing)


def _reuse_part(
    plan: Plan, planned: PlannedOperator, base_commits: Mapping[int, Commit], pair: tuple[int, int]
) -> None:
    """Link one part, its quarantine file and then its record. ``pair``: its shard here and in the base."""
    increment, store, (shard, old) = plan.increment, plan.store, pair
    if increment is None:
        return
    commit = replace(base_commits[old], shard=shard)
    part, base_part = store.part(planned.fingerprint, shard), store.part(planned.kept, old)
    link(base_part, part, root=plan.output)
    if commit.quarantined or commit.skipped:
        known, now = increment.manifest["source"]["shards"][old], plan.shards[shard]
        offset = now.first_row - int(known["first_row"])
        renamed = now.path if redact(now.path) != known["path"] else ""
        target = store.quarantine(planned.fingerprint, shard)
        _link_quarantine(store.quarantine(planned.kept, old), target, offset, renamed, plan.output)
    record, base_record = part.with_suffix(".json"), base_part.with_suffix(".json")
    if shard == old:  # the same bytes: to write and flush a file takes longer than all else here
        link(base_record, record, root=plan.output)
    else:
        write_json(record, asdict(commit), root=plan.output)


def _link_quarantine(source: Place, target: Place, offset: int, renamed: str, output: Place) -> None:
    """Link a quarantine file, or rewrite it with row ids that are larger by ``offset``.

    ``renamed`` is the new name of the file that holds the rows; empty if it has the same name.
    """
    if not offset and not renamed:
        link(source, target, root=output)
        return
    table = read_columns(source)
    ids = pc.add(table.column(ROW_ID), pa.scalar(offset, pa.int64()))
    table = table.set_column(table.column_names.index(ROW_ID), ROW_ID, ids)
    write_parquet(with_file(table, renamed) if renamed else table, target, root=output)
