"""Registered models, read from MLflow: by a URI, or as the champion of a registered name."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.storage import Place
from engine.core.errors import InfeasibleError, InputError, one_line
from engine.core.legacy import tag_value
from engine.core.redaction import redact
from engine.publish.own_artifacts import check_artifacts, download_artifacts
from engine.publish.tracking import VERSION_TAG, client, has_records, tracking_uri
from engine.publish.withdrawn_models import WITHDRAWN_TAG
from engine.storage.manifest import NAME
from engine.storage.withdrawals import withdrawal_of
from engine.training.serving.served_files import check_limits, model_files

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

_log = logging.getLogger("rowsieve")
CHAMPION = "champion"
MISSING = "RESOURCE_DOES_NOT_EXIST"
"""MLflow's code of an error for a model, or an alias, that is not there."""
MODEL, DATA = "model", "rowsieve"
"""Folder of a model among the artifacts of its run, and of Rowsieve's files in the model's ``data``."""
REGISTER = (
    "repeat `rowsieve retrain` with --register NAME, and give the URI that it prints, such as models:/NAME/1."
)
"""Remedy for a training whose model is not on MLflow, since it was not registered."""


def champion_version(mlflow_client: MlflowClient, name: str) -> ModelVersion | None:
    """Return the version with the alias ``champion``; None if MLflow says that there is none.

    Raises InfeasibleError if MLflow does not say it: a model must not count as the first one, and be promoted
    without a comparison, because a server is down or refuses the request.
    """
    from mlflow.exceptions import MlflowException

    try:
        return mlflow_client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        if error.error_code == MISSING or _has_no_champion(mlflow_client, name, error):
            return None
        raise InfeasibleError(
            f"MLflow does not say which version of the model {name!r} is the champion: {one_line(error)}. "
            f"Start it, or correct MLFLOW_TRACKING_URI or its rights; then run the same command again."
        ) from None


def _has_no_champion(mlflow_client: MlflowClient, name: str, error: MlflowException) -> bool:
    """Return whether a model has no champion, as which some stores report an invalid parameter."""
    from mlflow.exceptions import MlflowException

    if error.error_code != "INVALID_PARAMETER_VALUE":
        return False
    try:
        return CHAMPION not in mlflow_client.get_registered_model(name).aliases
    except MlflowException as other:
        return bool(other.error_code == MISSING)


def trained_on(mlflow_client: MlflowClient, name: str) -> str | None:
    """Return the dataset version that the champion was trained on; None without a champion.

    Raises InfeasibleError if MLflow does not answer.
    """
    found = champion_version(mlflow_client, name)
    return None if found is None else tag_value(found.tags, VERSION_TAG)


def withdrawn_data(mlflow_client: MlflowClient, name: str, number: str, output: Place) -> str:
    """Say that the version that a model was trained on was withdrawn, and why; empty if it stands.

    The tag of the model counts, or where MLflow was not told, the record in the output.
    """
    tags = mlflow_client.get_model_version(name, number).tags
    version = tag_value(tags, VERSION_TAG)
    why = tags.get(WITHDRAWN_TAG)
    if why is None and version and NAME.fullmatch(version):
        known = withdrawal_of(output, version)
        why = known.why if known else None
    if why is None:
        return ""
    return f"was trained on the version {version}, which was withdrawn: {redact(why).rstrip('.')}"


def champion_of(
    mlflow_client: MlflowClient, name: str, scratch: Path, output: Place
) -> tuple[str, Path] | None:
    """Download the champion into a folder; return its version number and its folder, or None.

    Raises InputError if the output's own database names a place outside the output for its artifacts, and
    InfeasibleError if MLflow does not say which version is the champion.
    """
    version = champion_version(mlflow_client, name)
    if version is None:
        return None
    run_id, path = str(version.run_id), f"{MODEL}/data/{DATA}"
    return str(version.version), _download(mlflow_client, run_id, path, scratch, output)


def download(model: str, scratch: Path, output: Place) -> Path:
    """Download a model by its URI; return its folder.

    Parameters
    ----------
    model
        ``models:/NAME@ALIAS``, ``models:/NAME/VERSION``, ``runs:/RUN`` or ``runs:/RUN/PATH``.
    scratch
        Folder to download into.
    output
        Output folder whose database has the model, where MLFLOW_TRACKING_URI names no server.

    Raises
    ------
    InputError
        MLflow does not give the model, or the output's own database names a place outside the output for it.
    """
    remedy = (
        "Name its server in MLFLOW_TRACKING_URI, or with --tracking the output folder whose database has the "
        "model."
    )
    if tracking_uri(output) and not has_records(output):  # a client would create the database
        raise InputError(f"{model}: there is no database {redact(tracking_uri(output))}. {remedy}")
    from mlflow.exceptions import MlflowException

    try:
        found = client(output)
        run_id, path = _artifact(found, model)
        return _download(found, run_id, path, scratch, output)
    except (MlflowException, OSError, ValueError) as error:
        reason = one_line(error)
        if getattr(error, "error_code", "") == MISSING:
            remedy = f"{remedy} If it is not registered yet, {REGISTER}"
        raise InputError(f"{model}: MLflow does not give this model ({reason}). {remedy}") from None


def _download(mlflow_client: MlflowClient, run_id: str, path: str, scratch: Path, output: Place) -> Path:
    """Copy a model of a run to this host.

    Raises InputError where the run has no such model, and beyond the administrator's limits.
    """
    folder = check_artifacts(mlflow_client, run_id, output)
    n_files = (
        _check_listed(mlflow_client, run_id, path) if folder is None else len(model_files(folder / path))
    )
    if not n_files:
        raise InputError(
            f"The run {run_id} has no model at {path!r}: a training without --register keeps none. For one, "
            f"{REGISTER}"
        )
    return download_artifacts(mlflow_client, run_id, path, scratch, output)


def _check_listed(mlflow_client: MlflowClient, run_id: str, path: str) -> int:
    """Return the number of files in a folder of artifacts. Raises InputError as ``check_limits`` does."""
    waiting, n_files, n_bytes = [path], 0, 0
    while waiting:
        for entry in mlflow_client.list_artifacts(run_id, waiting.pop()):
            if entry.is_dir:
                waiting.append(entry.path)
            n_files, n_bytes = n_files + 1, n_bytes + int(entry.file_size or 0)
            check_limits(f"{path} of the run {run_id!r}", n_files, n_bytes)
    return n_files


def _artifact(mlflow_client: MlflowClient, model: str) -> tuple[str, str]:
    """Return the run and the path of the artifact that a URI names.

    Logs a warning where the version that a registered model was trained on was withdrawn.
    """
    name = model.partition(":/")[2].strip("/")
    if model.startswith("runs:/"):
        run_id, _, path = name.partition("/")
        return run_id, path or MODEL
    registered, at, alias = name.partition("@")
    if at:
        found = mlflow_client.get_model_version_by_alias(registered, alias)
    else:
        registered, _, number = name.partition("/")
        found = mlflow_client.get_model_version(registered, number)
    if (why := found.tags.get(WITHDRAWN_TAG)) is not None:
        _log.warning(
            "%s was trained on the version %s, which was withdrawn: %s",
            *(model, tag_value(found.tags, VERSION_TAG), redact(why)),
        )
    return str(found.run_id), MODEL
