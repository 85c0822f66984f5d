"""The sink: source columns and sidecars zipped into an immutable version; the pointer flips last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connectors.storage import Place, make_folder
from engine.chain import CONTRACT
from engine.fingerprint import digest
from engine.lease import Lease
from engine.manifest import NAME
from engine.plan import FORMAT, Plan
from engine.reader import StoreReader
from engine.redaction import redact
from engine.store import to_json
from engine.versions import package_versions
from operators.base import GROUP, IS_OUTLIER, OUTLIER_SOURCE, ROW_ID, SPLIT, WEIGHT, Executor

POINTER = "CURRENT"
DATA = "data"
"""Parts have a folder of their own: pandas, polars and DuckDB read one only if all of it is Parquet."""
SET_ASIDE = "quarantine"
MOST_FILES = 100
"""Files that are named in a manifest for columns that were not read."""
QUARANTINED = {GROUP: -1, IS_OUTLIER: True, OUTLIER_SOURCE: SET_ASIDE, WEIGHT: 0.0, SPLIT: "dropped"}
"""Contract values of rows that no operator saw."""


@dataclass(frozen=True)
class PartJob:
    """Everything one shard's publication needs. Picklable."""

    reader: StoreReader
    schema: pa.Schema
    prefix: str
    folder: Place
    shard: int
    lease: Lease
    all_columns: bool
    """Whether the recipe wants every column of the source, so that one that is not published is lost."""


def version_folder(output: Place, version: str) -> Place:
    """Folder of a published version."""
    return output / "versions" / version


def is_published(output: Place, version: str) -> bool:
    """Whether the version is complete: its manifest is written last."""
    there = (version_folder(output, version) / "manifest.json").exists()
    return there and NAME.fullmatch(version) is not None


def publish(plan: Plan, executor: Executor, lease: Lease) -> Iterator[dict[str, Any]]:
    """Write every part, make the folder visible, then its manifest: before that it is no version.

    Yields each part's record. Raises LockedError if another writer has taken the output over.
    """
    final = version_folder(plan.output, plan.version)
    folder = lease.parts_of(final)
    make_folder(folder / DATA)
    prefix, everything = plan.recipe.output.prefix, plan.recipe.source.columns is None
    jobs = [
        PartJob(plan.reader(), plan.published_schema, prefix, folder, shard.index, lease, everything)
        for shard in plan.shards
    ]
    parts = []
    for part in executor.map(write_part, jobs):
        parts.append(part)
        yield part
    lease.publish(final, to_json(manifest(plan, parts)))


def point_to(output: Place, version: str, lease: Lease) -> None:
    """Make a published version the current one. Raises LockedError if another writer took over."""
    lease.point(output / POINTER, version)


def write_part(job: PartJob) -> dict[str, Any]:
    """Publish one shard. Runs on a worker."""
    names = [field.name for field in CONTRACT if field.name != ROW_ID]
    ours = job.reader.read_all(job.shard, names)
    seen = pc.invert(ours.column(names[0]).is_null())
    for name in names[1:]:
        seen = pc.and_(seen, pc.invert(ours.column(name).is_null()))
    columns = {ROW_ID: ours.column(ROW_ID)}
    columns |= {name: fill(ours.column(name), seen, QUARANTINED[name]) for name in names}
    source_names = job.schema.names[: -len(CONTRACT)]
    table = job.reader.read_unhidden(job.shard, source_names)
    for field in CONTRACT:
        table = table.append_column(job.prefix + field.name, columns[field.name].cast(field.type))
    name = f"{DATA}/part-{job.shard:05d}.parquet"
    written = job.lease.put_part(job.folder / name, table.cast(job.schema))
    return {
        "path": name,
        "rows": table.num_rows,
        "bytes": written.n_bytes,
        "sha256": written.sha256,
        "summary": summarise(columns),
        "unread": list(job.reader.unread(job.shard)) if job.all_columns else [],
    }


def fill(column: pa.ChunkedArray, seen: pa.ChunkedArray, value: Any) -> pa.ChunkedArray:
    """The contract's value for rows that were set aside, by whichever operator."""
    if pc.all(seen).as_py():
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(pa.string())
    return pc.if_else(seen, column, pa.scalar(value, column.type))


def summarise(columns: dict[str, pa.ChunkedArray]) -> dict[str, Any]:
    """Small counts of a part; they add up over parts."""
    weight = columns[WEIGHT].to_numpy().astype(np.float64)
    set_aside = pc.equal(columns[OUTLIER_SOURCE].cast(pa.string()), SET_ASIDE)
    return {
        "groups": _counts(columns[GROUP]),
        "splits": _counts(columns[SPLIT]),
        "outliers": int(pc.sum(columns[IS_OUTLIER]).as_py() or 0),
        "quarantined": int(pc.sum(set_aside).as_py() or 0),
        "weight_sum": float(weight.sum()),
        "weight_square_sum": float((weight**2).sum()),
    }


def manifest(plan: Plan, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of a version. Holds nothing that differs between two runs over the same bytes."""
    record = plan.to_dict()
    published = [{key: part[key] for key in ("path", "rows", "bytes", "sha256")} for part in parts]
    return {
        "format": FORMAT,
        "version": plan.version,
        "fingerprint": plan.fingerprint,
        "recipe": plan.recipe.name,
        "seed": plan.recipe.seed,
        "rows": plan.n_rows,
        "content": digest([part["sha256"] for part in published]),
        "parts": published,
        "schema": record["schema"],
        "summary": total([part["summary"] for part in parts]),
        "source": {
            "path": redact(plan.recipe.source.path),
            "label": plan.recipe.source.label,
            "features": list(plan.features),
            "files": record["files"],
            "shards": record["shards"],
            "skipped": record["skipped"],
            "on_corrupt": plan.recipe.source.on_corrupt,
            **({"unread": unread} if (unread := _unread(plan, parts)) else {}),
        },
        "operators": [
            {
                key: value
                for key, value in operator.items()
                if key in ("name", "version", "params", "requires", "files", "fingerprint")
            }
            for operator in record["operators"]
        ],
        **({"incremental": record["incremental"]} if plan.increment else {}),
        "packages": package_versions(),
    }


def _unread(plan: Plan, parts: list[dict[str, Any]]) -> dict[str, list[str]]:
    """File -> columns that are not read from it; of so many files at most."""
    found: dict[str, set[str]] = {}
    for shard, part in zip(plan.shards, parts, strict=True):
        if part["unread"] and (shard.path in found or len(found) < MOST_FILES):
            found.setdefault(shard.path, set()).update(part["unread"])
    return {redact(path): sorted(names) for path, names in sorted(found.items())}


def total(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up the parts' counts."""
    counts: dict[str, Counter[str]] = {"groups": Counter(), "splits": Counter()}
    for summary in summaries:
        for key, counter in counts.items():
            counter.update(summary[key])
    weight, square = (sum(s[key] for s in summaries) for key in ("weight_sum", "weight_square_sum"))
    return {
        **{key: dict(counter) for key, counter in counts.items()},
        "outliers": sum(summary["outliers"] for summary in summaries),
        "quarantined": sum(summary["quarantined"] for summary in summaries),
        "effective_sample_size": weight**2 / square if square else 0.0,
    }


def _counts(column: pa.ChunkedArray) -> dict[str, int]:
    pairs = pc.value_counts(column.cast(pa.string())).to_pylist()
    return {pair["values"]: pair["counts"] for pair in pairs}
