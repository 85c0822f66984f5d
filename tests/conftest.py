"""Settings every test shares: one Ray for the whole session, quiet and small; repeatable random examples."""

import gc
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from hypothesis import HealthCheck, settings
from typer.main import get_command

from tests.s3 import S3Server, s3_server

COMMON = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=10, **COMMON)
settings.register_profile("full", max_examples=100, **COMMON)  # --hypothesis-profile full
settings.register_profile("mutants", max_examples=8, **COMMON)
settings.load_profile("quick")

# Before anything imports torch, ray or mlflow. One thread each: tests run side by side, and threads that wait
# for each other took a third of the CPU time.
os.environ.update(
    {
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # by default 15: beside the unit tests workers would wait for minutes
        "RAY_BACKEND_LOG_LEVEL": "fatal",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "ROWSIEVE_FACTORIES": "tests,nowhere,nowhere_at_all,no_such_package",
    }
)
for name in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI"):
    os.environ.pop(name, None)


# MLflow's flavour of torch imports Lightning where it is installed: 4 s, for a log that no test asks for.
sys.modules["mlflow.pytorch._lightning_autolog"] = None  # type: ignore[assignment]

# Until all tests are collected: what they import stays, and a third of the time was spent looking through it.
gc.disable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import skops first in a process of `-n`: it looks through all modules, of which there are few now."""
    if hasattr(session.config, "workerinput"):
        import skops.io  # noqa: F401


def pytest_collection_finish() -> None:
    """Leave what is there by now out of the collections of garbage: they took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Give it back, so that libraries find no leaks at the end."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def no_flush_to_disk() -> Iterator[None]:
    """No flush to disk in the tests' own process: no test cuts the power, and it took much of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def numbered_folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Iterator[int]]:
    """The folder of all ``tmp_path``, and their numbers. Its name is short, as a socket's path must be."""
    return tmp_path_factory.mktemp("t"), count()


@pytest.fixture
def tmp_path(numbered_folders: tuple[Path, Iterator[int]], request: pytest.FixtureRequest) -> Path:
    """A new folder. For pytest's own, the names of those of all earlier tests are read: 4 ms after 500."""
    parent, numbers = numbered_folders
    name = re.sub(r"\W", "_", request.node.name)[:24]
    folder = parent / f"{name}{next(numbers)}"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Typer's runner makes all commands of the program anew at each call: 60 ms, for the same commands."""
    made: dict[int, tuple[Any, Any]] = {}

    def command_of(app: Any) -> Any:
        if id(app) not in made:
            made[id(app)] = app, get_command(app)  # the app is kept, so that no other one gets its id
        return made[id(app)][1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", command_of)
        yield


@pytest.fixture(autouse=True)
def mlflow_databases(tmp_path_factory: pytest.TempPathFactory) -> None:
    """New MLflow databases are copies of the first one: its 40 migrations take a second or more."""
    utils = sys.modules.get("mlflow.store.db.utils")
    if utils is not None and not hasattr(utils, "migrate"):
        utils.migrate = utils._upgrade_db
        empty = tmp_path_factory.mktemp("mlflow") / "empty.db"
        utils._upgrade_db = partial(_migrated, utils.migrate, empty)


def _migrated(migrate: Callable[[Any], None], empty: Path, engine: Any) -> None:
    """Bring the tables of a new SQLite file to MLflow's present schema as a copy of ``empty``, made once."""
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    if not file or file == ":memory:":
        return migrate(engine)
    with closing(sqlite3.connect(file)) as database:
        query = "select count(*) from sqlite_master where name = 'alembic_version'"
        new = not database.execute(query).fetchone()[0]
        new = new and not database.execute("select count(*) from experiments").fetchone()[0]
    if not new:
        return migrate(engine)
    engine.dispose()
    if not empty.exists():
        migrate(engine)
        engine.dispose()
        _copy_database(Path(file), empty)
    return _copy_database(empty, Path(file))


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        new.execute("pragma synchronous = off")
        old.backup(new)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """Ray on this machine, four CPUs whatever it has."""
    import ray

    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=300 * 2**20,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """An S3 server over HTTP; it starts in about a second."""
    with s3_server() as server:
        yield server
