"""The versions of an output folder: their history, and the removal of old ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from connectors.storage import Place
from engine.core.errors import InputError, one_line
from engine.core.legacy import tag_value
from engine.core.output_layout import POINTER, check_real_folders, version_folder
from engine.plan.decisions import remove_decisions
from engine.publish.lineage_events import Datasets, recorded_job
from engine.publish.lineage_facets import manifest_facets, output_name, tag_facet
from engine.publish.tracking import VERSION_TAG, client, has_records, tracking_uri
from engine.runs.descriptions import descriptions_file
from engine.runs.training_record import read_training, training_file
from engine.storage.lease import Lease, hold_lease
from engine.storage.manifest import NUMBER, is_published, pointed_version, published_versions, read_manifest
from engine.storage.registrations import FOLDER as MODELS
from engine.storage.registrations import recorded_models
from engine.storage.removals import check_there, removal_of, write_removal
from engine.storage.stores import store_of
from engine.storage.withdrawals import current_version, withdrawal_of

FINGERPRINT = re.compile(r"[0-9a-f]{32}")
"""Names of the folders of the run store; see :func:`engine.core.digests.digest`."""


@dataclass(frozen=True)
class PruneResult:
    """The versions and run store folders that were removed, and the versions that :func:`prune` kept."""

    versions: tuple[str, ...]
    fingerprints: tuple[str, ...]
    """Removed folders of the run store, which no remaining version needs."""
    kept_for: dict[str, str]
    """Older versions that were kept, with the reason."""


def history(output: Place) -> list[dict[str, Any]]:
    """Return every published version, latest first. Raises InputError if there is none."""
    current, models = current_version(output), _models(output, strict=False)
    found = []
    for name in published_versions(output):
        folder = version_folder(output, name)
        manifest = read_manifest(folder)
        increment, withdrawn = manifest.get("incremental") or {}, withdrawal_of(output, name)
        groups = [group for group in manifest["summary"]["groups"] if group != "-1"]
        found.append(
            {
                "version": name,
                "current": name == current,
                NUMBER: manifest.get(NUMBER, 0),
                "published_at": (folder / "manifest.json").stat().st_mtime,
                "rows": manifest["rows"],
                "groups": len(groups),
                "base": increment.get("base"),
                "outcome": increment.get("outcome", "full"),
                "why": increment.get("why", ""),
                "fitted": increment.get("fitted", {}),
                "shards": increment.get("shards"),
                "models": models.get(name, []),
                "withdrawn": withdrawn.why if withdrawn else None,
            }
        )
    if not found:
        raise InputError(
            f"{output} holds no published version. Name the output folder of a recipe that has run."
        )
    # Versions without a number are older than those with one; only among them, times of files decide.
    order = (NUMBER, "published_at", "current")
    return sorted(found, key=lambda entry: [entry[key] for key in order], reverse=True)


def prune(output: Place, keep: int, *, dry_run: bool = False) -> PruneResult:
    """Remove all but the latest ``keep`` versions, and run store folders that no remaining version needs.

    Withdrawn versions are removed and do not count. The current version stays, and so do versions on which a
    registered model was trained, by the records of the output and by MLflow. The order is that of the
    manifests' numbers. Commits of interrupted runs are removed too. With ``dry_run`` nothing is removed or
    locked, and the result says what would be.

    Raises InputError if MLflow does not answer with the models or a folder of the output is a link, and
    LockedError if a run is active.
    """
    if keep < 1:
        raise InputError(
            f"rowsieve versions prune --keep {keep}: at least one version must stay. Give --keep 1 or more."
        )
    return _carry_out(output, partial(_chosen, output, keep), "rowsieve versions prune", dry_run=dry_run)


def remove(output: Place, version: str, *, dry_run: bool = False) -> PruneResult:
    """Remove one version, withdrawn or not, and its folders of the run store that no other version needs.

    Versions that continue from it have files of their own and stay as they are. A removal that was
    interrupted is ended by the same command. Parameters and exceptions as of :func:`prune`.

    Raises
    ------
    InputError
        The version is the current one, a registered model was trained on it, or it is not there.

    """
    return _carry_out(output, partial(_named, output, version), "rowsieve versions remove", dry_run=dry_run)


def _carry_out(output: Place, choose: Callable[[], PruneResult], what: str, *, dry_run: bool) -> PruneResult:
    """Remove what ``choose`` returns while the output's lease is held; see :func:`prune`."""
    check_real_folders(output)
    if dry_run:
        return choose()
    with hold_lease(output, what) as lease:
        found = choose()
        for name in found.versions:
            _remove_reported(output, name, lease)
        for fingerprint in found.fingerprints:
            lease.check()
            lease.discard(store_of(output).folder(fingerprint))
        remove_decisions(output, found.versions)
    return found


def _chosen(output: Place, keep: int) -> PruneResult:
    """Return the versions and folders that :func:`prune` removes, and the versions that it keeps."""
    entries, models = history(output), _models(output, strict=True)
    standing = [entry["version"] for entry in entries if entry["withdrawn"] is None] or [
        entries[0]["version"]
    ]
    stays, kept_for = set(standing[:keep]), {}
    for name in (entry["version"] for entry in entries if entry["version"] not in stays):
        if why := _needed_for(output, name, models)[0]:
            kept_for[name] = why
    stays |= set(kept_for)
    gone = [entry["version"] for entry in entries if entry["version"] not in stays]
    return PruneResult(tuple(gone), tuple(sorted(_stored(output) - _needed(output, stays))), kept_for)


def _named(output: Place, version: str) -> PruneResult:
    """Return what :func:`remove` removes. Raises InputError if the version must stay or is not there."""
    known = removal_of(output, version)
    if known is None:
        check_there(output, version)
        mine = _needed(output, [version])
    else:  # interrupted, if anything of it is left
        mine = set(known.fingerprints)
    others = set(published_versions(output)) - {version}
    gone = (mine & _stored(output)) - _needed(output, others)
    if known is not None and not gone and not version_folder(output, version).exists():
        check_there(output, version)
    why, remedy = _needed_for(output, version, _models(output, strict=True))
    if why:
        raise InputError(f"The version {version} of {output} stays: {why}. {remedy}.")
    return PruneResult((version,), tuple(sorted(gone)), {})


def _needed_for(output: Place, name: str, models: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return why a version must not be removed, and what to do first; empty texts if it may be."""
    withdraw = f"Withdraw it first: {shlex.join(['rowsieve', 'retract', f'{output}@{name}', '--why'])} REASON"
    if name == current_version(output):
        return "it is the current version", withdraw
    if name == pointed_version(output):  # its withdrawal was interrupted
        return f"{POINTER} names it", withdraw
    if name in models:
        delete = f"Delete these model versions on MLflow, and their records in {output / MODELS}"
        return f"models lead back to it: {', '.join(models[name])}", delete
    return "", ""


def _remove_reported(output: Place, name: str, lease: Lease) -> None:
    """Remove a version, and report it to OpenLineage. The record of its removal is written first."""
    if not is_published(output, name):
        _remove(output, name, lease)
        return
    manifest = read_manifest(version_folder(output, name))
    with recorded_job(
        output, f"{manifest['recipe']}.remove", "REMOVE", partial(_datasets, output, manifest)
    ) as seen:
        write_removal(output, manifest)
        _remove(output, name, lease)
        seen.value = name


def _datasets(output: Place, manifest: Mapping[str, Any], removed: str | None) -> Datasets:
    """Return the version as an output of the job; with a tag once it is removed.

    OpenLineage's facet of a dataset's life would say that the whole dataset is gone, and its other versions
    are not.
    """
    from openlineage.client import event_v2

    facets = manifest_facets(manifest)
    if removed is not None:
        facets["tags"] = tag_facet("rowsieve.removed", "true")
    return Datasets([], [event_v2.OutputDataset(*output_name(output), facets=facets)])


def _remove(output: Place, name: str, lease: Lease) -> None:
    """Remove a version, its manifest first: without the manifest, readers no longer see the version."""
    folder, report = version_folder(output, name), output / "reports" / f"{name}.html"
    beside = [report, report.with_suffix(".digest"), descriptions_file(output, name)]
    beside += [output / "runs" / f"{name}.json", training_file(output, name)]
    with lease.removing(folder):
        for place in (folder / "manifest.json", folder, *beside):
            lease.discard(place)


def _needed(output: Place, versions: Iterable[str]) -> set[str]:
    """Return the fingerprints whose folders of the run store these versions need."""
    return {
        entry["fingerprint"]
        for name in versions
        for entry in read_manifest(version_folder(output, name))["operators"]
    }


def _stored(output: Place) -> set[str]:
    """Return the fingerprints in the run store; folders of other names are not ours to remove."""
    try:
        entries = [entry for entry in store_of(output).root.iterdir() if FINGERPRINT.fullmatch(entry.name)]
        return {entry.name for entry in entries if _is_real_folder(entry)}
    except FileNotFoundError:
        return set()


def _is_real_folder(place: Place) -> bool:
    return place.is_dir() and not (isinstance(place, Path) and place.is_symlink())


def _models(output: Place, *, strict: bool) -> dict[str, list[str]]:
    """Return the registered models trained on each version, by MLflow and by the records of the output.

    The records count also where MLflow does not know the model: it may be another server than at the time of
    the registration. With ``strict``, an MLflow server that does not answer is an error, and so is a record
    that cannot be read.
    """
    records = {name: read_training(output, name) for name in published_versions(output)}
    noted = {name: record["registered"] for name, record in records.items() if record and record["trained"]}
    found = {name: [f"{m['name']} {m['version']}"] for name, m in noted.items() if m}
    for name, models in recorded_models(output, strict=strict).items():
        found[name] = list(dict.fromkeys([*found.get(name, []), *models]))
    if not has_records(output):
        return found
    try:
        for model in client(output).search_model_versions():
            known = found.setdefault(tag_value(model.tags, VERSION_TAG) or "", [])
            known += {f"{model.name} {model.version}"}.difference(known)
    except Exception as error:
        if strict:
            raise InputError(
                f"MLflow at {tracking_uri(output)} does not say on which versions models were "
                f"trained, and these versions must stay: {one_line(error)}. Check MLFLOW_TRACKING_URI."
            ) from None
    return found
