"""The versions of an output folder: their history, and the removal of old ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.storage import Place, remove_file, remove_tree
from engine.core.errors import InputError, one_line
from engine.core.legacy import tag_value
from engine.core.output_layout import check_real_folders, version_folder
from engine.publish.tracking import VERSION_TAG, client, has_records, tracking_uri
from engine.runs.descriptions import descriptions_file
from engine.runs.training_record import read_training, training_file
from engine.storage.lease import hold_lease
from engine.storage.manifest import NUMBER, published_versions, read_manifest
from engine.storage.registrations import recorded_models
from engine.storage.stores import store_of
from engine.storage.withdrawals import current_version, withdrawal_of

FINGERPRINT = re.compile(r"[0-9a-f]{32}")
"""Names of the folders of the run store; see :func:`engine.core.digests.digest`."""


@dataclass(frozen=True)
class PruneResult:
    """The versions and run store folders that :func:`prune` removed, and the versions that it kept."""

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
    # Versions of before the numbers come first; only among them, times of files decide.
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
    check_real_folders(output)
    if dry_run:
        return _chosen(output, keep)
    with hold_lease(output, "rowsieve versions prune"):
        found = _chosen(output, keep)
        for name in found.versions:
            _remove(output, name)
        for fingerprint in found.fingerprints:
            remove_tree(store_of(output).folder(fingerprint), root=output)
    return found


def _chosen(output: Place, keep: int) -> PruneResult:
    """Return the versions and folders that :func:`prune` removes, and the versions that it keeps."""
    entries, models = history(output), _models(output, strict=True)
    standing = [entry["version"] for entry in entries if entry["withdrawn"] is None] or [
        entries[0]["version"]
    ]
    stays, kept_for = set(standing[:keep]), {}
    for entry in entries:
        name = entry["version"]
        if name in stays:
            continue
        if entry["current"]:
            kept_for[name] = "it is the current version"
        elif name in models:
            kept_for[name] = f"models lead back to it: {', '.join(models[name])}"
    stays |= set(kept_for)
    gone = [entry["version"] for entry in entries if entry["version"] not in stays]
    return PruneResult(tuple(gone), tuple(_unneeded(output, stays)), kept_for)


def _remove(output: Place, name: str) -> None:
    """Remove a version, its manifest first: without the manifest, readers no longer see the version."""
    folder = version_folder(output, name)
    remove_file(folder / "manifest.json", root=output)
    remove_tree(folder, root=output)
    report = output / "reports" / f"{name}.html"
    described = descriptions_file(output, name)
    for file in (report, report.with_suffix(".digest"), described, output / "runs" / f"{name}.json"):
        remove_file(file, root=output)
    remove_file(training_file(output, name), root=output)


def _unneeded(output: Place, versions: Iterable[str]) -> list[str]:
    """Return the fingerprints in the run store that no version needs; folders of other names stay."""
    needed = {
        entry["fingerprint"]
        for name in versions
        for entry in read_manifest(version_folder(output, name))["operators"]
    }
    try:
        entries = [entry for entry in store_of(output).root.iterdir() if FINGERPRINT.fullmatch(entry.name)]
        folders = [entry.name for entry in entries if _is_real_folder(entry)]
    except FileNotFoundError:
        return []
    return sorted(set(folders) - needed)


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
