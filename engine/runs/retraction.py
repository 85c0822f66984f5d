"""Withdrawing a published version, and taking that back. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from connectors.storage import Place
from engine.core.errors import InputError
from engine.core.output_layout import POINTER, version_folder
from engine.publish.export_records import ExportedTable, exported_tables
from engine.publish.lineage_events import Datasets, recorded_job
from engine.publish.lineage_facets import manifest_facets, output_name, withdrawn_facet
from engine.publish.publisher import describe_again
from engine.publish.withdrawn_models import TrainedModel, WithdrawnTag, tag_runs_and_models
from engine.report.withdrawn import mark_report
from engine.runs.run_record import read_record
from engine.storage.lease import hold_lease
from engine.storage.manifest import is_published, pointed_version, read_manifest
from engine.storage.withdrawals import (
    checked_reason,
    current_version,
    publication_number,
    remove_withdrawal,
    standing_versions,
    withdrawal_of,
    write_withdrawal,
)


@dataclass(frozen=True)
class Retraction:
    """The result of a withdrawal, or of taking it back: what readers get now, and where else the version is.

    Attributes
    ----------
    version, why
        The version and the reason; empty if it stands.
    current
        The version that readers get from now on; None if no version stands.
    models
        Registered models trained on it.
    exports
        Tables that it was exported to. They are not changed.
    mlflow_error
        Why MLflow was not told; empty if it was.
    exports_error
        Why the tables are not known; empty if they are.

    """

    version: str
    why: str
    current: str | None
    models: tuple[TrainedModel, ...]
    exports: tuple[ExportedTable, ...]
    mlflow_error: str = ""
    exports_error: str = ""


def retract(output: Place, version: str, why: str, *, move_aliases: bool = False) -> Retraction:
    """Withdraw a version: readers of the current one get the newest that stands, and an error if none does.

    The record is written first, so that an interruption leaves readers with the older version; the command
    given again does the rest. A version that is withdrawn already gets the new reason.

    Parameters
    ----------
    move_aliases
        Move the aliases of models that were trained on it to the newest version of the model that was
        trained on a version that stands.

    Raises
    ------
    InputError
        The reason is empty or too long, or a record is damaged.
    LockedError
        A run is active.

    """
    with hold_lease(output, "rowsieve retract") as lease:
        reason = write_withdrawal(output, version, why).why
        describe_again(output, version, reason)
        mark_report(output, version, reason)
        current, pointed = current_version(output), pointed_version(output)
        if pointed not in (None, current):
            lease.point(output / POINTER, current)
    return _tell(output, version, reason, move_aliases=move_aliases)


def foresee_retraction(output: Place, version: str, why: str, *, move_aliases: bool = False) -> Retraction:
    """Return the result that :func:`retract` would have, and change nothing."""
    reason, current = checked_reason(why), current_version(output)
    standing = [name for name in standing_versions(output) if name != version]
    tag = WithdrawnTag(reason, dry_run=True)
    models, failed = _models(output, version, tag, standing, move_aliases)
    follows = next(iter(standing), None) if current == version else current
    exports, unread = _exports(output, version)
    return Retraction(version, reason, follows, models, exports, failed, unread)


def undo_retraction(output: Place, version: str) -> Retraction:
    """Take a withdrawal back: the version stands again.

    If it was current when it was withdrawn, and nothing was published after it, it is current again; so it
    is if no other version stands. The record is removed last: until then readers get what they got before,
    also after an interruption, and the command given again does the rest. Aliases of models stay where they
    are.

    Raises
    ------
    InputError
        The version is not withdrawn.
    LockedError
        A run is active.

    """
    with hold_lease(output, "rowsieve retract --undo") as lease:
        record = withdrawal_of(output, version)
        if record is None:
            raise InputError(f"The version {version} in {output} is not withdrawn, so nothing was changed.")
        pointed = pointed_version(output)
        later = pointed is not None and _is_later(output, pointed, version)
        if pointed is None or (record.was_current and pointed != version and not later):
            lease.point(output / POINTER, version)
        describe_again(output, version, "")
        mark_report(output, version, "")
        remove_withdrawal(output, version)
    return _tell(output, version, None)


def _is_later(output: Place, version: str, other: str) -> bool:
    """Return whether a version is still there and was published after another."""
    numbers = [
        publication_number(output, name) if is_published(output, name) else 0 for name in (version, other)
    ]
    return numbers[0] > numbers[1]


def _tell(output: Place, version: str, why: str | None, *, move_aliases: bool = False) -> Retraction:
    """Record the withdrawal on MLflow and for OpenLineage, and return the result."""
    manifest, standing = read_manifest(version_folder(output, version)), standing_versions(output)
    with recorded_job(
        output, f"{manifest['recipe']}.retract", "RETRACT", partial(_datasets, output, manifest, why)
    ):
        models, failed = _models(output, version, WithdrawnTag(why), standing, move_aliases)
    exports, unread = _exports(output, version)
    return Retraction(version, why or "", current_version(output), models, exports, failed, unread)


def _exports(output: Place, version: str) -> tuple[tuple[ExportedTable, ...], str]:
    """Return the tables that a version was exported to, and why they are not known; empty if they are."""
    earlier = read_record(output, version).get("exports") or ()
    try:
        return tuple(exported_tables(output, version, earlier)), ""
    except InputError as error:
        return (), str(error)


def _models(
    output: Place, version: str, tag: WithdrawnTag, standing: Collection[str], move_aliases: bool
) -> tuple[tuple[TrainedModel, ...], str]:
    """Return the models of a version once MLflow was told, and why it was not; empty if it was."""
    try:
        found = tag_runs_and_models(output, version, tag, standing=standing, move_aliases=move_aliases)
    except InputError as error:
        return (), str(error)
    return tuple(found), ""


def _datasets(output: Place, manifest: Mapping[str, Any], why: str | None, _: Any) -> Datasets:
    """Return the version as an output of the job, with the reason as a tag while it is withdrawn."""
    from openlineage.client import event_v2

    facets = manifest_facets(manifest) | ({"tags": withdrawn_facet(why)} if why is not None else {})
    return Datasets([], [event_v2.OutputDataset(*output_name(output), facets=facets)])
