"""The commands on every package's page: each is run here, or in the file named beside the reason why not."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from engine.execution.local_executor import LocalExecutor
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import recipe_for, spurious_table, write_shards

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("connectors", "deploy", "engine", "operators", "tests")
PAGES = {
    page: page.read_text("utf-8")
    for name in PACKAGES
    for page in sorted((ROOT / name).rglob("*.md"))
    if page.name in ("README.md", "AUDIT.md")
}
PROGRAMS = ("rowsieve", "make", "python", "pip", "ray", "kubectl", ".venv/bin/python", ".venv/bin/pip")
ELSEWHERE = {
    "rowsieve submit my-recipe.yaml": ("tests/cluster/test_jobs_ray.py", "needs a head node"),
    "rowsieve status ": ("tests/cluster/test_jobs_ray.py", "needs a head node"),
    "rowsieve logs JOB": ("tests/cluster/test_jobs_ray.py", "needs a head node"),
    "rowsieve cancel JOB": ("tests/cluster/test_jobs_ray.py", "needs a head node"),
    "rowsieve retrain --dataset demo/out --trainer resample": (
        "tests/unit/engine/training/test_estimator_registry.py",
        "needs a published dataset; run there on one",
    ),
    "rowsieve retrain --dataset homes/out": (
        "tests/unit/engine/training/test_regression.py",
        "needs a version with a target; run there on one",
    ),
    "rowsieve predict models:": (
        "tests/unit/engine/training/serving/test_prediction.py",
        "needs a registered model",
    ),
    "rowsieve cues OUTPUT": (
        "tests/unit/engine/cli/test_cues_lines.py",
        "needs a version with the operator cues",
    ),
    "rowsieve versions OUTPUT remove V1": (
        "tests/unit/engine/runs/test_removal.py",
        "needs a version on which no command above has registered a model",
    ),
    "rowsieve deploy render": ("tests/unit/project/test_deploy_files.py", "run there, with its files"),
    "pip wheel ": ("tests/unit/project/test_distribution.py", "built there"),
    "ray up": ("tests/unit/project/test_deploy_files.py", "needs machines; Ray checks the file"),
    "ray start": ("tests/unit/project/test_deploy_files.py", "Ray parses the options"),
    "kubectl ": ("deploy/README.md", "needs a Kubernetes"),
    "python -m engine.recipe.reference": (
        "tests/unit/project/test_reference.py",
        "writes into the source; what it writes is compared there",
    ),
    "python -m connectors.madlibs": (
        "tests/unit/connectors/test_connectors_madlibs.py",
        "needs a copy of Bias Madlibs",
    ),
    "python -m connectors.": (
        "tests/unit/project/test_docs.py",
        "run for the front page and in `make drift-demo`",
    ),
    "python -m venv .venv-ortools": ("tests/benchmarks/splits_flow.py", "another protobuf than Rowsieve's"),
    ".venv/bin/python -m pytest": ("Makefile", "the tests themselves"),
    ".venv/bin/python -m tests.": ("tests/benchmarks/README.md", "minutes to hours"),
    "python -m tests.": ("tests/benchmarks/README.md", "minutes to hours"),
}
STANDS_FOR = ("RECIPE", "OUTPUT", "FOLDER", "VERSION", "V1", "V2", "delta:PATH")


def commands(text: str) -> Iterator[str]:
    """Yield the texts of console blocks, indented lines and backticks that begin with a program."""
    inline = re.findall(r"`([^`\n]+)`", text)
    for line in [*re.findall(r"^(?:\$ |    )(\S.*)$", text, re.MULTILINE), *inline]:
        command = re.sub(r"\s+#\s.*$", "", line).removeprefix("OMP_NUM_THREADS=1 ").strip()
        if command.split()[0] in PROGRAMS:
            yield command


ALL = sorted({command for text in PAGES.values() for command in commands(text)})
MAKE = [c for c in ALL if c.startswith("make ")]
NAMES = [c for c in ALL if re.fullmatch(r"rowsieve( \w+)?", c)]
INSTALLED = [c for c in ALL if re.match(r"(\S+/)?pip install ", c)]
OTHERS = [c for c in ALL if c.startswith(tuple(ELSEWHERE))]
SCHEDULES = [c for c in ALL if c.startswith("rowsieve schedule ")]
RUN = [c for c in ALL if c not in {*MAKE, *NAMES, *INSTALLED, *OTHERS, *SCHEDULES}]


def test_what_is_not_run_here_is_run_there() -> None:
    assert [c for c in RUN if not c.startswith("rowsieve ")] == []
    for prefix, (file, _) in ELSEWHERE.items():
        assert any(command.startswith(prefix) for command in OTHERS), prefix
        assert (ROOT / file).exists()
    for module in {name for c in OTHERS for name in re.findall(r"python -m ((?:tests|connectors)\S*)", c)}:
        assert find_spec(module), module


@pytest.mark.parametrize("command", MAKE)
def test_make_knows_its_targets(command: str) -> None:
    words = ["make", "--dry-run", *shlex.split(command.replace("[", "").replace("]", ""))[1:]]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_commands_that_are_named_are_there() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    assert {c.split()[1] for c in NAMES if " " in c} <= {*group.commands}


@pytest.mark.parametrize("command", INSTALLED)
def test_what_is_installed_is_declared(command: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "deploy/constraints.txt").open()}
    for word in shlex.split(command)[2:]:
        if found := re.fullmatch(r"rowsieve\[(\w+)\]", word):
            assert found[1] in extras
        elif not word.startswith(("-", ".", "deploy/")):
            assert word.lower() in pinned


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A recipe, its output with two versions, and what the capitals in commands stand for."""
    folder = tmp_path_factory.mktemp("pages")
    write_shards(folder / "data", spurious_table())
    names = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.runs.plugins.report.write_report", lambda *_: None)  # half of the time
        for validation in (0.3, 0.2):
            split = {"split": {"validation": validation}}
            value = recipe_for(folder / "data", folder / "demo/out", operators=split)
            names.append(run(Recipe.parse(value)).version)
    (folder / "r.yaml").write_text(yaml.safe_dump(value))
    out = str(folder / "demo/out")
    given = (str(folder / "r.yaml"), out, out, f"{out}/versions/{names[1]}", *names, f"delta:{folder}/table")
    written = {"hf:FOLDER": f"hf:{folder}/hub", "changed.parquet": str(folder / "changed.parquet")}
    return dict(zip(STANDS_FOR, given, strict=True)) | written | {"OUTPUT@VERSION": f"{out}@{names[0]}"}


@pytest.mark.parametrize("command", RUN)
def test_commands_run(command: str, world: dict[str, str]) -> None:
    words = [world.get(word, word) for word in shlex.split(command)[1:]]
    extra = ["--executor", "local"] if words[0] == "export" else []
    done = CliRunner().invoke(app, [*words, *extra])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", SCHEDULES)
def test_schedules_wait_until_they_are_stopped(command: str, world: dict[str, str]) -> None:
    words = [world.get(word, word) for word in shlex.split(command)[1:]]
    line = [sys.executable, "-m", "engine.cli", *words]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "waiting" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_python_of_training_runs(world: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGES[ROOT / "engine/training/README.md"]
    lines = re.findall(r"^    (from engine.*|result.*)$", text, re.MULTILINE)
    assert len(lines) == 3
    monkeypatch.chdir(Path(world["OUTPUT"]).parents[1])
    found: dict[str, Any] = {"executor": LocalExecutor()}
    exec("\n".join([*lines[:-1], f"score = {lines[-1]}"]), found)
    assert 0 <= found["score"] <= 1


@pytest.mark.parametrize("page", ["engine/README.md", "engine/runs/README.md"])
def test_sections_are_parts_of_a_recipe(page: str, world: dict[str, str]) -> None:
    text = PAGES[ROOT / page]
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    blocks += re.findall(r"^    (output:\n      path: \S+)", text, re.MULTILINE)
    assert len(blocks) == 1
    value = yaml.safe_load(Path(world["RECIPE"]).read_text())
    Recipe.parse(value | yaml.safe_load(blocks[0]))
