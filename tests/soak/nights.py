"""Carries out the nights: faults, runs, trainings, exports and removals, and the comparisons from scratch."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import free_port
from tests.soak.driver import Driver
from tests.soak.measures import (
    Figures,
    files_of,
    manifest_of,
    mlflow_rows,
    needed,
    state_files,
    stored,
    training_of,
)
from tests.soak.world import Night, World

KEEP = 4
"""Versions that stay when old ones are removed."""
START_SECONDS = 120.0
OPERATORS: dict[str, dict[str, Any]] = {
    "probe": {"l2": 0.05, "trainer": "in_process"},
    "gradients": {},
    "groups": {"min_samples": [5], "min_rows": 0},
    "weights": {"method": "group_balanced", "trust": "all"},
    "split": {},
}
TRAIN = {
    "trainer": "erm",
    "params": {"epochs": 2, "batch_size": 64},
    "when": "drift",
    "register_as": "soak",
    "promote_if": "worst_group_accuracy > champion - 0.2",
}


class Server:
    """MLflow's server, which can be away for a night."""

    def __init__(self, folder: Path) -> None:
        """Make its folder; it is not started."""
        self.database, self._folder = folder / "mlflow.db", folder
        folder.mkdir()
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = ["server", "--backend-store-uri", f"sqlite:///{self.database}", "--host", "127.0.0.1"]
        words += ["--port", str(self._port), "--workers", "1"]
        words += ["--artifacts-destination", str(self._folder / "artifacts")]
        environment = os.environ | {
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).parent / "mlflow"), *words],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "server.log").read_text()
            assert time.monotonic() < deadline, "MLflow does not start"
            time.sleep(0.2)

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.address}/health", timeout=2):
            return True
        return False

    def stop(self) -> None:
        """Kill it with its workers."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)
            self._process = None


@dataclass
class Soak:
    """One series of nights below a folder."""

    folder: Path
    seed: int = 0
    compare_every: int = 1
    """Every so many nights a version is compared with one from scratch, and every one that learnt again."""
    export_every: int = 5
    remove_every: int = 7
    retrain_every: int = 10
    figures: list[Figures] = field(default_factory=list)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Manifests of all versions that there were, also of those that are removed."""
    say: Callable[[str], None] = print
    _pace: float = 3.0
    """Seconds of the last run, from which moments of kills are drawn."""

    def __post_init__(self) -> None:
        """Make the source, the recipe, MLflow's server and the driver."""
        self.world = World(self.folder / "data", self.folder / "archive", self.seed)
        self.output = self.folder / "out"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.recipe = self.folder / "soak.yaml"
        self.recipe.write_text(yaml.safe_dump(self.mapping(), sort_keys=False))
        self.server = Server(self.folder / "mlflow")
        self.server.start()
        self.environment = os.environ | {
            "MLFLOW_TRACKING_URI": self.server.address,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
        }
        self.driver = Driver(self.folder, self.environment)

    def mapping(self) -> dict[str, Any]:
        """Return the recipe of the nights."""
        return {
            "name": "soak",
            "seed": 3,
            "source": {
                "path": f"{self.folder}/data/*.parquet",
                "label": "label",
                "exclude": ["id"],
                "holdout": {"share": 0.2, "key": "id"},
                "on_error": "quarantine",
                "on_corrupt": "skip",
            },
            "truth": {"group": "truth"},
            "operators": OPERATORS,
            "incremental": {"base": "current", "keep": []},
            "train": TRAIN,
            "output": {
                "path": str(self.output),
                "export": [{"format": "parquet", "path": f"{self.folder}/exported", "mode": "append"}],
            },
            "run": {"executor": "local"},
        }

    def close(self) -> None:
        """End all processes."""
        self.driver.close()
        self.server.stop()

    def night(self, night: Night) -> Figures:
        """Carry out one night and return its figures."""
        new = self.world.begin(night)
        if night.fault == "new column":
            before = self.world.add_column(night)
            self.driver.run("run", str(self.recipe), "--log-format", "plain", codes=[2])
            assert "has a column 'later'" in self.driver.tail()
            self.world.put_back(before)
        former = self.current()
        if night.fault == "MLflow away":
            self.server.stop()
        if night.fault.startswith("killed"):
            for _ in range(1 + (night.fault == "killed twice")):
                self.run_and_kill(night)
        away = night.fault == "MLflow away"
        codes = [0, 4] if away else [0]  # 4: a training was due, and could not be registered
        answer = self.driver.run("run", str(self.recipe), "--log-format", "plain", codes=codes)
        self._pace = answer.seconds
        if away:
            self.server.start()
            again = ["run", str(self.recipe)] if answer.code else ["lineage", "--sync"]
            self.driver.run(*again, *([] if answer.code else ["--output", str(self.output)]))
        manifest = self.manifests[self.current()] = manifest_of(self.output)
        increment = manifest.get("incremental") or {}
        outcome = "same" if self.current() == former else increment.get("outcome", "full")
        training = training_of(self.output) or {}
        figures = Figures(
            night.number,
            night.fault,
            outcome,
            new,
            manifest["rows"],
            len(manifest["source"]["shards"]),
            round(answer.seconds, 2),
            answer.handles,
            answer.threads,
            round(answer.peak_mib, 1),
            round(answer.mib, 1),
            cpu_seconds=round(answer.cpu_seconds, 2),
            trained=bool(training.get("trained")) and outcome != "same",
            promoted=bool((training.get("promoted") or {}).get("promoted")),
        )
        if outcome in ("refit", "full") or night.number % self.compare_every == 0:
            figures.compared = self.compare(outcome)
        self.housekeeping(night)
        figures.files, figures.stored = files_of(self.output), len(stored(self.output))
        figures.state_files = state_files(self.output)
        figures.versions = len(list((self.output / "versions").iterdir()))
        figures.mlflow = mlflow_rows(self.server.database)
        figures.temporary = sum(path.is_file() for path in self.temporary.rglob("*"))
        assert stored(self.output) == needed(self.output), "the run store holds what no version needs"
        self.figures.append(figures)
        with (self.folder / "figures.jsonl").open("a") as record:
            record.write(json.dumps(asdict(figures)) + "\n")
        self.say(
            f"night {night.number}: {night.fault or 'calm'}: {outcome}, {new} new of {figures.rows} rows, "
            f"{figures.seconds} s, {figures.handles} handles, {figures.peak_mib} MiB, "
            f"{sum(figures.files.values())} files {figures.compared}"
        )
        return figures

    def current(self) -> str:
        """Return the name of the current version; empty before the first night."""
        pointer = self.output / "CURRENT"
        return pointer.read_text().split()[0] if pointer.exists() else ""

    def run_and_kill(self, night: Night) -> None:
        """Start the night's run in a process of its own and kill it at a moment that is drawn."""
        rng = random.Random(f"{self.seed} {night.number} {len(self.figures)}")
        words = [str(Path(sys.executable).parent / "rowsieve"), "run", str(self.recipe)]
        with (self.folder / "killed.log").open("ab") as log:
            process = subprocess.Popen(
                words, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
            with suppress(subprocess.TimeoutExpired):
                process.wait(2.0 + rng.random() * self._pace)
            process.kill()
            process.wait(10)

    def housekeeping(self, night: Night) -> None:
        """Retrain, export and remove versions, each on some nights."""
        if night.number % self.retrain_every == 0:
            words = ["--dataset", str(self.output), "--register", "soak", "--set", "epochs=2"]
            self.driver.run("retrain", *words, "--promote-if", "accuracy > champion - 0.2")
        if night.number % self.export_every == 0:
            to = ["--to", f"delta:{self.folder / 'delta'}", "--executor", "local"]
            mode = ["--mode", "overwrite" if (self.folder / "delta").exists() else "create"]
            self.driver.run("export", str(self.output), *to, *mode)
        names = sorted((self.output / "versions").iterdir(), key=lambda path: path.stat().st_mtime)
        if night.number % self.remove_every == 0 and len(names) > KEEP:
            free = [path.name for path in names if self.is_free(path.name)]
            if free:
                self.driver.run("versions", str(self.output), "remove", free[0])
        self.driver.run("versions", str(self.output), "prune", "--keep", str(KEEP))

    def is_free(self, version: str) -> bool:
        """Return whether a version may be removed: it is not current and no model was trained on it."""
        path = self.output / "runs" / f"{version}.train.json"
        trained = path.exists() and json.loads(path.read_text())["trained"]
        registered = any(version in file.read_text() for file in self.output.glob("registered/**/*.json"))
        return version != self.current() and not trained and not registered

    def compare(self, outcome: str) -> str:
        """Compare the current version with one from scratch whose decision was the same; both in full.

        A version that learnt again: one full run. A version that placed new rows: a full run of the rows that
        were learnt from, and one increment of all that came since.
        """
        manifest = manifest_of(self.output)
        learnt = self.last_fit(manifest)
        place = self.folder / "scratch"
        shutil.rmtree(place, ignore_errors=True)
        (place / "data").mkdir(parents=True)
        self.lay_out(place / "data", learnt)
        found = self.scratch(place, None)
        if learnt["version"] != manifest["version"]:
            shutil.rmtree(place / "data")
            (place / "data").mkdir()
            self.lay_out(place / "data", manifest)
            found = self.scratch(place, {"base": "current", "mode": "predict", "keep": []})
        wanted = table_of(self.output / "versions" / manifest["version"])
        got = table_of(found)
        different = [name for name in wanted.column_names if not got[name].equals(wanted[name])]
        assert not different, f"{manifest['version']}: {different} differ from those from scratch"
        return "= from scratch" if learnt is manifest else "= placed from scratch"

    def last_fit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Return the manifest of the version that learnt last: this one, or one of those before it."""
        while (manifest.get("incremental") or {}).get("outcome") == "predict":
            manifest = self.manifests[manifest["incremental"]["base"]]
        return manifest

    def lay_out(self, folder: Path, manifest: dict[str, Any]) -> None:
        """Link the files of a version into a folder, in the order of its shards."""
        source = manifest["source"]
        for number, shard in enumerate(source["shards"]):
            os.link(self.content(source["files"][shard["path"]]), folder / f"{number:05d}.parquet")

    def content(self, identity: str) -> Path:
        """Return the archived file of an identity."""
        for name in (identity, identity.rpartition(":")[2]):
            if (self.world.archive / name).exists():
                return self.world.archive / name
        raise AssertionError(f"no file of the identity {identity}")

    def scratch(self, place: Path, incremental: dict[str, Any] | None) -> Path:
        """Run the recipe on laid out files in another output; return the folder of the version."""
        mapping = self.mapping()
        mapping["source"]["path"] = f"{place}/data/*.parquet"
        mapping["output"] = {"path": str(place / "out")}
        mapping |= {"tracking": {"enabled": False}, "report": {"enabled": False}, "train": None}
        mapping["incremental"] = incremental or {}
        result = run(Recipe.parse(mapping))
        assert isinstance(result.path, Path)
        return result.path


def table_of(version: Path) -> pa.Table:
    """Return all rows of a version, in their order."""
    return pq.read_table(version / "data")
