"""Withdrawing a published version, and taking that back. Nothing is deleted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from connectors.storage import Place
from engine.core.errors import InputError
from engine.core.output_layout import POINTER, output_of, split_version, version_folder
from engine.publish.export_records import ExportedTable, exported_tables
from engine.publish.lineage_events import Datasets, recorded_job
from engine.publish.lineage_facets import manifest_facets, output_name, tag_facet
from engine.publish.publisher import describe_again
from engine.publish.withdrawn_models import (
    WITHDRAWN_TAG,
    ToldModels,
    TrainedModel,
    WithdrawnTag,
    tag_runs_and_models,
)
from engine.report.withdrawn import mark_report
from engine.runs.run_record import read_record
from engine.storage.ancestry import Ancestry
from engine.storage.lease import hold_lease
from engine.storage.manifest import NAME, is_published, pointed_version, read_manifest
from engine.storage.removals import removal_of, removed_text
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
    earlier
        Reasons that were given before, the latest last; the record keeps them.
    before, current
        The version that readers got before, and the one that they get from now on; None if no version stands.
    continued_by
        Standing versions that continue from it, so that what operators have learnt on it is in them.
    models
        Registered models trained on it.
    exports
        Tables that it was exported to. They are not changed.
    mlflow_error
        Why MLflow was not told; empty if it was.
    exports_error
        Why the tables are not known; empty if they are.
    elsewhere
        Other outputs on the same MLflow server that have a version of this name; their runs and models were
        left alone.

    """

    version: str
    why: str
    current: str | None
    models: tuple[TrainedModel, ...]
    exports: tuple[ExportedTable, ...]
    mlflow_error: str = ""
    exports_error: str = ""
    before: str | None = None
    earlier: tuple[str, ...] = ()
    continued_by: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()


def retract(
    output: Place, version: str, why: str, *, move_aliases: bool = False, method: bool = False
) -> Retraction:
    """Withdraw a version: readers of the current one get the newest that stands, and an error if none does.

    The record is written first, so that an interruption leaves readers with the older version; the command
    given again does the rest. A version that is withdrawn already gets the new reason, and its record keeps
    the earlier ones.

    Parameters
    ----------
    move_aliases
        Move the aliases of models that were trained on it to the newest version of the model that was
        trained on a version that stands.
    method
        The operators were wrong, and not the data: newer versions of them may publish the rows again.

    Raises
    ------
    InputError
        The reason is empty or too long, or a record is damaged.
    LockedError
        A run is active.

    """
    with hold_lease(output, "rowsieve retract") as lease:
        before = _readers_get(output)
        record = write_withdrawal(output, version, why, method=method)
        _describe_all(output, version, record.why)
        mark_report(output, version, record.why)
        current, pointed = current_version(output), pointed_version(output)
        if pointed not in (None, current):
            lease.point(output / POINTER, current)
    earlier = tuple(reason.why for reason in record.earlier)
    return _tell(output, version, record.why, before, earlier, move_aliases=move_aliases)


def check_not_removed(version: str) -> None:
    """Raise InputError where ``OUTPUT@VERSION`` is no longer there, and say what of it is left elsewhere."""
    place, name = split_version(version)
    output = output_of(place)
    if not NAME.fullmatch(name) or is_published(output, name):
        return
    tables, _ = _exports(output, name)
    known, removed = withdrawal_of(output, name), removal_of(output, name)
    if not tables and known is None and removed is None:
        return
    held = [
        f"{table}" + (f" (replaced by {table.replaced_by})" if table.replaced_by else "") for table in tables
    ]
    told = removed_text(output, removed) if removed else f"The version {name} was removed from {output}."
    before = f" Before, it was withdrawn: {known.why.rstrip('.')}." if known else ""
    left = f" It was exported to {', '.join(held)}: change these tables by hand." if held else ""
    raise InputError(
        f"{told}{before} There is nothing of it that readers of the output could get, so that nothing is "
        f"withdrawn.{left}"
    )


def foresee_retraction(output: Place, version: str, why: str, *, move_aliases: bool = False) -> Retraction:
    """Return the result that :func:`retract` would have, and change nothing."""
    reason, current = checked_reason(why), current_version(output)
    standing = [name for name in standing_versions(output) if name != version]
    tag = WithdrawnTag(reason, dry_run=True)
    told, failed = _models(output, version, tag, standing, move_aliases)
    follows = next(iter(standing), None) if current == version else current
    exports, unread = _exports(output, version)
    known = withdrawal_of(output, version)
    given = () if known is None else (*(one.why for one in known.earlier), known.why)
    earlier = tuple(why for why in given if why != reason)
    on = _standing_on(output, version)
    return Retraction(
        *(version, reason, follows, told.models, exports, failed, unread),
        *(_readers_get(output), earlier, on, told.elsewhere),
    )


def _readers_get(output: Place) -> str | None:
    """Return the current version; None also where a record is damaged, so that readers get an error."""
    try:
        return current_version(output)
    except InputError:
        return None


def _standing_on(output: Place, version: str) -> tuple[str, ...]:
    on = Ancestry(output).versions_on(version)
    return tuple(name for name in on if withdrawal_of(output, name) is None)


def _describe_all(output: Place, version: str, why: str) -> None:
    """Rewrite the cards of a version and of those that continue from it; an empty ``why``: it stands."""
    stands, ancestry = "" if why else version, Ancestry(output)
    describe_again(output, version, why, ancestry=ancestry, stands=stands)
    for name in ancestry.versions_on(version):
        known = withdrawal_of(output, name)
        describe_again(output, name, known.why if known else "", ancestry=ancestry, stands=stands)


def undo_retraction(output: Place, version: str) -> Retraction:
    """Take a withdrawal back: the version stands again.

    If it was current when it was withdrawn, it is current again, unless readers get a version meanwhile that
    was published after it and was not its successor then; so it is if no other version stands. The record is
    removed last: until then readers get what they got before, also after an interruption, and the command
    given again does the rest. Aliases of models stay where they are.

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
        before, pointed = current_version(output), pointed_version(output)
        later = pointed not in (None, record.successor) and _is_later(output, str(pointed), version)
        if pointed is None or (record.was_current and pointed != version and not later):
            lease.point(output / POINTER, version)
        _describe_all(output, version, "")
        mark_report(output, version, "")
        remove_withdrawal(output, version)
    return _tell(output, version, None, before)


def _is_later(output: Place, version: str, other: str) -> bool:
    """Return whether a version is still there and was published after another."""
    numbers = [
        publication_number(output, name) if is_published(output, name) else 0 for name in (version, other)
    ]
    return numbers[0] > numbers[1]


def _tell(
    output: Place,
    version: str,
    why: str | None,
    before: str | None,
    earlier: tuple[str, ...] = (),
    *,
    move_aliases: bool = False,
) -> Retraction:
    """Record the withdrawal on MLflow and for OpenLineage, and return the result."""
    manifest, standing = read_manifest(version_folder(output, version)), standing_versions(output)
    with recorded_job(
        output, f"{manifest['recipe']}.retract", "RETRACT", partial(_datasets, output, manifest, why)
    ):
        told, failed = _models(output, version, WithdrawnTag(why), standing, move_aliases)
    exports, unread = _exports(output, version)
    current, on = current_version(output), _standing_on(output, version)
    return Retraction(
        *(version, why or "", current, told.models, exports, failed, unread),
        *(before, earlier, on, told.elsewhere),
    )


def _exports(output: Place, version: str) -> tuple[tuple[ExportedTable, ...], str]:
    """Return the tables that a version was exported to, and why they are not known; empty if they are."""
    earlier = read_record(output, version).get("exports") or ()
    try:
        return tuple(exported_tables(output, version, earlier)), ""
    except InputError as error:
        return (), str(error)


def _models(
    output: Place, version: str, tag: WithdrawnTag, standing: Collection[str], move_aliases: bool
) -> tuple[ToldModels, str]:
    """Return the models of a version once MLflow was told, and why it was not; empty if it was."""
    try:
        found = tag_runs_and_models(output, version, tag, standing=standing, move_aliases=move_aliases)
    except InputError as error:
        return ToldModels(), str(error)
    return found, ""


def _datasets(output: Place, manifest: Mapping[str, Any], why: str | None, _: Any) -> Datasets:
    """Return the version as an output of the job, with the reason as a tag while it is withdrawn."""
    from openlineage.client import event_v2

    facets = manifest_facets(manifest) | ({"tags": tag_facet(WITHDRAWN_TAG, why)} if why is not None else {})
    return Datasets([], [event_v2.OutputDataset(*output_name(output), facets=facets)])
