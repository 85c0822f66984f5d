"""Export of a published version to another table, in one commit that the table's metadata names."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.base import ConnectorError
from connectors.storage import Place, read_columns, read_part_schema
from connectors.tables.export import Export, VersionContent, VersionTag
from engine.core.errors import InputError, one_line
from engine.plan.chain import contract_columns
from engine.publish.dataset_card import TEXT, write_card
from engine.publish.export_records import record_export
from engine.publish.lineage_events import Datasets, recorded_job
from engine.publish.lineage_facets import (
    catalog_name,
    dataset_name,
    dataset_version_of,
    identity_lineage,
    manifest_facets,
    output_name,
    quality_facet,
    schema_facet,
    statistics_facet,
)
from engine.storage.withdrawals import check_stands, withdrawal_of, withdrawn_bases
from operators.base import SPLIT, Executor

_log = logging.getLogger("rowsieve")
TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences in messages of the libraries that write tables."""


@dataclass(frozen=True)
class ExportResult:
    """Result of one export.

    ``state`` is the table's name for its state with the version; ``written`` says whether this call wrote it.
    """

    format: str
    path: str
    state: str
    written: bool


def export(
    folder: Place, manifest: Mapping[str, Any], table: Export, executor: Callable[[], Executor]
) -> ExportResult:
    """Write a version into one table, unless the table's history has it.

    Workers write a file for each part; then this process makes the single commit. A run that dies before the
    commit leaves files that no reader sees, and the next run writes them again under the same names. The
    output keeps which tables have the version, from just before the commit on; see ``export_records``.

    Parameters
    ----------
    folder, manifest
        Folder and manifest of the published version.
    executor
        Returns the executor; it is called only if there is something to write.

    Raises
    ------
    InputError
        The version was withdrawn, or the table cannot be opened or written, exists although ``mode`` is
        create, or has other columns.
    """
    job = f"{manifest.get('recipe', folder.name)}.export.{table.format}"
    with recorded_job(
        folder.parent.parent, job, "EXPORT", partial(_datasets, folder, manifest, table)
    ) as seen:
        if folder.parent.name == "versions":
            check_stands(folder.parent.parent, folder.name)
        seen.value = done = _export(folder, manifest, table, executor)
    return done


def _datasets(
    folder: Place, manifest: Mapping[str, Any], table: Export, done: ExportResult | None
) -> Datasets:
    """Return version and table as datasets of OpenLineage; with facets of the table once it is written."""
    from openlineage.client import event_v2

    names = [column["name"] for column in manifest["schema"]]
    place = catalog_name(table.path, table.catalog) if table.catalog else dataset_name(table.path)
    version = output_name(folder.parent.parent)
    metrics = {"dataQualityMetrics": quality_facet(manifest, as_input=True)}
    facets, written = {"schema": schema_facet(manifest["schema"], manifest.get("outputs", ()))}, {}
    if done is not None:
        state = dataset_version_of(done.state)
        facets |= {"version": state, "columnLineage": identity_lineage(version, names)}
        written = statistics_facet(manifest["rows"] if done.written else 0)
    return Datasets(
        [event_v2.InputDataset(*version, facets=manifest_facets(manifest), inputFacets=metrics)],
        [event_v2.OutputDataset(*place, facets=facets, outputFacets=written)],
    )


def _export(
    folder: Place, manifest: Mapping[str, Any], table: Export, executor: Callable[[], Executor]
) -> ExportResult:
    tag = VersionTag(manifest["version"], manifest["content"])
    try:
        known = table.committed_state(tag)
        if known:
            return _recorded(folder, table, known, written=False)
        pending = table.start_export(_schema(folder, manifest), tag, _content(folder, manifest))
        parts = [folder / part["path"] for part in manifest["parts"]]
        try:
            records = list(executor().map(partial(_write, pending.write), list(enumerate(parts))))
        except (ConnectorError, InputError, OSError):
            known = table.committed_state(tag)  # a faster export has committed and removed unfinished files
            if not known:
                raise
            return _recorded(folder, table, known, written=False)
        _record(folder, table, "", written=True)
        done = pending.commit(records)
        return _recorded(folder, table, done.state, written=done.written)
    except ConnectorError as error:
        raise InputError(f"Export to {table.format}: {error}") from None
    except OSError as error:
        reason = " ".join(TERMINAL_COLOURS.sub("", str(error)).split())
        raise InputError(
            f"Export to {table.format}: {table.path} cannot be written: {reason}. "
            "Correct the path or its permissions."
        ) from error


def _recorded(folder: Place, table: Export, state: str, *, written: bool) -> ExportResult:
    """Return the result of an export once the output has kept it."""
    _record(folder, table, state, written=written)
    return ExportResult(table.format, table.path, state, written)


def _record(folder: Place, table: Export, state: str, *, written: bool) -> None:
    """Keep in the output that the table has the version; warn where the output cannot be written."""
    if folder.parent.name != "versions":
        return
    try:
        record_export(folder.parent.parent, folder.name, table, state, written=written)
    except (ConnectorError, OSError) as error:
        _log.warning(
            "%s cannot keep that %s holds the version %s, so `rowsieve retract` will not name it: %s.",
            *(folder.parent.parent, table.path, folder.name, one_line(error)),
        )


def _content(folder: Place, manifest: Mapping[str, Any]) -> VersionContent:
    """Return the split's column and the card, for formats without metadata. Old manifests name no outputs."""
    output, inside = folder.parent.parent, folder.parent.name == "versions"
    known = withdrawal_of(output, folder.name) if inside else None
    withdrawn, bases = known.why if known else "", withdrawn_bases(output, manifest) if inside else {}
    split = contract_columns(manifest).get(SPLIT, {}).get("name")

    def card(files: Mapping[str, str]) -> bytes:
        return write_card(manifest, files, withdrawn=withdrawn, withdrawn_bases=bases).encode()

    label = str(manifest.get("source", {}).get("label"))
    kinds = {column["name"]: column["type"] for column in manifest.get("schema", ())}
    if not TEXT.search(kinds.get(label, "")):
        return VersionContent(split, card)
    return VersionContent(split, card, label, partial(_classes, folder, manifest, label))


def _classes(folder: Place, manifest: Mapping[str, Any], label: str) -> list[str]:
    """Return the values of the label in the order of the classes: as declared, else sorted."""
    params = {entry["name"]: entry["params"] for entry in manifest["operators"]}
    declared = [str(value) for value in params.get("ingest", {}).get("classes") or ()]
    found: set[str] = set()
    for part in manifest["parts"]:
        column = read_columns(folder / part["path"], [label])[label]
        found.update(value for value in pc.unique(column.cast(pa.string())).to_pylist() if value is not None)
    return [*declared, *sorted(found.difference(declared))]


def _schema(folder: Place, manifest: Mapping[str, Any]) -> pa.Schema:
    """Return the schema of the first part, with every field nullable."""
    found = read_part_schema(folder / manifest["parts"][0]["path"])
    return pa.schema([pa.field(field.name, field.type) for field in found])


def _write(write: Callable[[pa.Table, int], Any], part: tuple[int, Place]) -> Any:
    number, place = part
    return write(read_columns(place), number)
