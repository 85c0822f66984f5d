"""Lineage of a published version: the runs that made it, its source files and the models trained on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from connectors.storage import Place
from engine.core.errors import InputError, one_line
from engine.core.legacy import tag_names, tag_value
from engine.core.output_layout import check_real_folders, output_of, split_version, version_folder
from engine.core.redaction import redact
from engine.publish.lineage_outbox import sync_events
from engine.publish.mlflow_outbox import pending, pending_folder, warn_of_others
from engine.publish.outbox_sync import sync
from engine.publish.tracking import (
    OUTPUT_TAG,
    VERSION_TAG,
    client,
    has_records,
    mlflow_answers,
    quoted,
    tracking_uri,
)
from engine.storage.manifest import published_versions, read_manifest
from engine.storage.removals import check_there
from engine.storage.withdrawals import current_version, nothing_current, similar_output, withdrawal_of


def trace(version: str, output: Place | None) -> dict[str, Any]:
    """Return version, MLflow runs (latest first), models and source as JSON-able values.

    Raises InputError if the version is not found, or MLflow does not answer.
    """
    output, name = locate(version, output)
    manifest, withdrawn = read_manifest(version_folder(output, name)), withdrawal_of(output, name)
    return {
        "version": name,
        "withdrawn": withdrawn.why if withdrawn else None,
        "folder": str(version_folder(output, name)),
        "content": manifest["content"],
        "rows": manifest["rows"],
        "tracking_uri": redact(tracking_uri(output)),
        **_recorded(name, output),
        "base": (manifest.get("incremental") or {}).get("base"),
        "source": manifest["source"],
        "operators": manifest["operators"],
    }


def sync_records(version: str | None, output: Place | None) -> str:
    """Deliver waiting events to OpenLineage and records to MLflow; return a line that says how many.

    Raises InputError if no folder is named or it does not exist, MLflow does not answer, a folder of the
    output is a link, or the output's own database names a place outside the output for artifacts.
    """
    if output is None and version is None:
        raise InputError(
            "rowsieve lineage --sync: no output folder is named. Give one, for example --output demo/out."
        )
    output = output or locate(str(version), None)[0]
    if isinstance(output, Path) and not output.is_dir():
        raise InputError(
            f"rowsieve lineage --sync: there is no folder {output}, and nothing was delivered. Name the "
            "output folder of a recipe that has run."
        )
    check_real_folders(output)
    events = sync_events(output)
    if not pending(output):
        others = warn_of_others(output)
        held = f"; files that hold none: {others}, see the warnings" if others else ""
        return f"No record waits for MLflow{held}. {events}".rstrip()
    try:
        delivered, waiting, failed = sync(client(output), output)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"MLflow at {tracking_uri(output)} takes no records at present: {one_line(error)}. The "
            f"records still wait in {pending_folder(output)}; check MLFLOW_TRACKING_URI."
        ) from None
    return (
        f"{delivered} records delivered to MLflow"
        + (f", {waiting} of a run in progress are waiting." if waiting else ".")
        + (f" Not taken by MLflow: {failed}, see the warnings." if failed else "")
        + (f" {events}" if events else "")
    )


def _recorded(version: str, output: Place) -> dict[str, Any]:
    """Return the runs and models of a version that MLflow knows. Raises InputError if it does not answer."""
    with mlflow_answers(output, f"which runs and models belong to {version}"):
        return {"runs": _runs(version, output), "models": _models(version, output)}


def locate(version: str, output: Place | None) -> tuple[Place, str]:
    """Return output and name of a version: its folder, its name, ``OUTPUT@VERSION``, or ``OUTPUT``.

    Raises InputError if there is none, or no version of ``OUTPUT`` stands.
    """
    place, name = split_version(version)
    folder = output_of(place)
    if not name and (folder / "manifest.json").exists():
        folder = folder.resolve()
        return folder.parent.parent, folder.name
    if name:
        output, version = folder, name
    elif output is None and (current := current_version(folder)):
        return folder, current
    elif output is None and published_versions(folder):
        raise nothing_current(folder)
    output = output or _output_of(version)
    check_there(output, version)
    return output, version


def _output_of(version: str) -> Place:
    """Return the output folder of a version, by the records of the MLflow server in the environment."""
    here = Path()
    if not has_records(here):
        raise InputError(
            f"No folder {version!r} with a manifest.json, and no MLflow server is named to search it on. "
            f"Give OUTPUT@VERSION, the version's folder, or set MLFLOW_TRACKING_URI.{similar_output(version)}"
        )
    runs = _recorded(version, here)["runs"]
    if not runs:
        raise InputError(f"No run on {tracking_uri(here)} published {version!r}. Give OUTPUT@VERSION.")
    return output_of(runs[0]["output"])


def _models(version: str, output: Place) -> list[dict[str, Any]]:
    """Return the registered models that were trained on a version."""
    if not has_records(output):
        return []
    found = client(output)
    models = [
        model for model in found.search_model_versions() if tag_value(model.tags, VERSION_TAG) == version
    ]
    aliases = {model.name: found.get_registered_model(model.name).aliases for model in models}
    return [
        {
            "name": model.name,
            "version": str(model.version),
            "run_id": model.run_id,
            "champion": str(aliases[model.name].get("champion")) == str(model.version),
        }
        for model in models
    ]


def _runs(version: str, output: Place) -> list[dict[str, Any]]:
    if not has_records(output):
        return []
    mlflow_client = client(output)
    experiments = [experiment.experiment_id for experiment in mlflow_client.search_experiments()]
    found = [
        run
        for tag in tag_names(VERSION_TAG)
        for run in mlflow_client.search_runs(experiments, f"tags.`{tag}` = {quoted(version)}", max_results=50)
    ]
    return [
        {
            "run_id": run.info.run_id,
            "name": run.info.run_name,
            "status": run.info.status,
            "started_ms": int(run.info.start_time),
            "output": tag_value(run.data.tags, OUTPUT_TAG) or "",
            "inputs": [
                {"name": entry.dataset.name, "digest": entry.dataset.digest}
                for entry in run.inputs.dataset_inputs
            ],
            "metrics": dict(run.data.metrics),
        }
        for run in found
    ]
