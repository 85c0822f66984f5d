"""Checks where an output's own MLflow database lets artifacts be written and read.

Without MLFLOW_TRACKING_URI, runs and models are recorded in ``mlflow.db`` of the output, and every run in it
names the place of its artifacts. Whoever can write a shared output can change these places, to a folder of
the next user or to a foreign server. Before artifacts are written or read, their place is therefore checked:
it must lie in ``mlartifacts`` of the output. A server that MLFLOW_TRACKING_URI names is trusted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from connectors.base import ConnectorError
from connectors.storage import Place, read_whole
from connectors.tables.sqlite_check import check_database_file
from engine.core.errors import InputError
from engine.core.output_layout import check_own_files
from engine.core.redaction import redact
from operators.base import OperatorError, copy_state

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

DATABASE, ARTIFACTS = "mlflow.db", "mlartifacts"
SIDE_FILES = ("", "-journal", "-wal", "-shm")
"""Endings of the files that SQLite opens for one database."""
MAY_TRIGGER = frozenset({"secrets"})
"""Tables on which MLflow itself makes triggers; Rowsieve writes none of them."""


def own_database(output: Place) -> Path | None:
    """Return the database file of an output; None with MLFLOW_TRACKING_URI or on an object store."""
    if os.environ.get("MLFLOW_TRACKING_URI") or not isinstance(output, Path):
        return None
    return output.resolve() / DATABASE


def artifacts_uri(output: Place) -> str | None:
    """Return the place of artifacts for a new experiment; None to leave it to MLflow's server."""
    database = own_database(output)
    return database.with_name(ARTIFACTS).as_uri() if database else None


def check_database(output: Place) -> None:
    """Check the output's own database before MLflow opens it. Nothing is checked if it is not in use.

    Raises
    ------
    InputError
        The database is a link, behind which SQLite would write; its journal names another file, which SQLite
        would remove; or it has views or triggers, which may run for ever.

    """
    database = own_database(output)
    for ending in SIDE_FILES if database else ():
        file = Path(f"{database}{ending}")
        if file.is_symlink():
            raise InputError(
                f"{file} is a link to {os.readlink(file)!r}. Rowsieve does not write behind links of an "
                f"output: replace it by the file itself, or set MLFLOW_TRACKING_URI to the database you mean."
            )
    if database:
        try:
            check_database_file(str(database), MAY_TRIGGER)
        except ConnectorError as error:
            raise InputError(str(error)) from None


def check_place(uri: str, what: str, output: Place) -> Path | None:
    """Check that a place of artifacts lies in the output, with links followed.

    Parameters
    ----------
    uri
        The place, as MLflow keeps it.
    what
        The experiment or run that names it, for the error.
    output
        The output whose database names it.

    Returns
    -------
    The folder; None if the output's own database is not in use, and nothing is checked.

    Raises
    ------
    InputError
        The place is outside the output's ``mlartifacts``.

    """
    database = own_database(output)
    if database is None:
        return None
    allowed = database.with_name(ARTIFACTS)
    folder = _local_folder(uri)
    if folder is None or not folder.is_relative_to(allowed):
        raise InputError(
            f"{database}: {what} keeps its artifacts at {redact(uri)!r}, which is not in {allowed}. Rowsieve "
            f"neither writes nor reads there, since whoever can write the output can change that place. If "
            f"you trust it, for example because you have moved the output, set MLFLOW_TRACKING_URI to "
            f"sqlite:///{database}. If not, move {DATABASE} aside, and the next run makes a new one."
        )
    return folder


def check_artifacts(client: MlflowClient, run_id: str, output: Place) -> Path | None:
    """Check the place of a run's artifacts before they are written or read.

    Returns
    -------
    The folder of the artifacts; None if the output's own database is not in use, and nothing is checked.

    Raises
    ------
    InputError
        The place of the run or of its experiment is outside the output's ``mlartifacts``, or a link is in it.

    """
    if own_database(output) is None:
        return None
    info = client.get_run(run_id).info
    experiment = client.get_experiment(info.experiment_id)
    check_place(str(experiment.artifact_location), f"the experiment {experiment.name!r}", output)
    folder = check_place(str(info.artifact_uri), f"the run {run_id!r}", output)
    if folder:
        check_own_files(folder, f"the artifacts of the run {run_id!r}")
    return folder


def download_artifacts(client: MlflowClient, run_id: str, path: str, scratch: Path, output: Place) -> Path:
    """Copy an artifact of a run into a folder of this host; return its path there.

    MLflow's own download also asks for models under other places that the database names. From the output's
    own database, only the checked folder is therefore copied.

    Raises
    ------
    InputError
        The place of the run's artifacts is outside the output, or a link is in it.
    Exception
        There is no such artifact; the class is MLflow's, or FileNotFoundError.

    """
    folder = check_artifacts(client, run_id, output)
    if folder is None:
        return Path(client.download_artifacts(run_id, path, str(scratch)))
    source = Path(os.path.realpath(folder / path))
    if not source.is_relative_to(folder):
        raise InputError(f"{path!r} is not below the artifacts of the run {run_id!r}. Name a folder of them.")
    copy = scratch / source.relative_to(folder)
    copy.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, copy, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, copy, follow_symlinks=False)
    return copy


def upload_file(
    client: MlflowClient, run_id: str, file: Place, name: str | None = None, *, root: Place
) -> None:
    """Upload a file of an output as an artifact of a run, below ``name``.

    MLflow opens a file by its path, where another user may have put a link in the meantime; so it gets a copy
    that is read without following links beneath ``root``.

    Raises
    ------
    InputError
        It is a link or no regular file, or a link leads to it.
    OSError
        It cannot be read, for example because there is none.

    """
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / file.name
        try:
            copy.write_bytes(read_whole(file, root=root))
        except ConnectorError as error:
            raise InputError(str(error)) from None
        client.log_artifact(run_id, str(copy), name)


def upload_folder(client: MlflowClient, run_id: str, folder: Path, name: str) -> None:
    """Upload the files of a folder of an output, below ``name``, as :func:`upload_file` does.

    Raises InputError, which names it, for a link or a pipe in the folder.
    """
    with tempfile.TemporaryDirectory() as scratch:
        try:
            copy_state(folder, Path(scratch))
        except OperatorError as error:
            raise InputError(str(error)) from None
        client.log_artifacts(run_id, scratch, name)


def _local_folder(uri: str) -> Path | None:
    """Return the folder that MLflow would use for a URI, with links followed; None for other URIs."""
    from mlflow.utils.file_utils import local_file_uri_to_path

    if not uri.startswith(("/", "file:///")):
        return None
    try:
        return Path(os.path.realpath(local_file_uri_to_path(uri)))
    except ValueError:  # a zero byte
        return None
