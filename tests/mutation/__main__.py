"""Mutation score of the numerical kernels: ``make mutants`` samples mutants and writes ``RESULTS.md``.

cosmic-ray finds the mutants. Running all of them takes days, so this module draws one mutant for each of a
random sequence of places, folder after folder, and runs the folder's unit tests on a copy of the project,
until the time is over. The same seed draws the same sequence.

    python -m tests.mutation [--minutes 15] [--seed 0] [--only eos,dckm] [--no-baseline]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pandas as pd
import pyarrow as pa
import pytest
import scipy.stats
import sklearn.utils.estimator_checks
import torch
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db

LOADED = (hypothesis, pa, pd, scipy.stats, sklearn.utils.estimator_checks, torch)
"""Imported once, for all forks."""
ROOT = Path(__file__).parents[2]
COPIED = ("operators", "engine", "connectors", "tests", "deploy", "pyproject.toml", "rowsieve")
KERNELS = {
    "dbscan": "dbscan/*.py",
    "grasp": "grasp/sel*.py",
    "eos": "eos/*.py",
    "dckm": "dckm/*.py",
    "lpboost": "lpboost/*.py",
    "splits": "splits/*.py",
    "weights": "weights/kernel.py",
    "metrics": "metrics/*.py",
}
NO_KERNEL = {
    "__init__",
    "adaptor",
    "params",
    "probe_job",
    "state",
    "operator",
    "at_random",
    "by_domain",
    "by_program",
    "cluster",
    "domains",
    "drawing",
    "shift",
    "sharded",
}
"""Modules of these folders that hold no numerical kernel."""
TESTS = {
    "grasp": [
        "tests/unit/operators/grasp/test_grasp_selection.py",
        "tests/unit/operators/grasp/test_grasp.py",
    ],
    "metrics": [
        "tests/unit/operators/metrics",
        "tests/unit/engine/runs/test_drift.py",
        "tests/unit/engine/training/test_training_scores.py",
        "tests/unit/operators/splits/test_splits.py",
    ],
}
"""Test files of a folder; by default ``tests/unit/operators/<folder>``."""
SKIPPED = ("BitOr", "Variable", "RemoveDecorator", "ExceptionReplacer", "Is_", "IsNot_")
"""Operators whose mutants are seldom faults: ``|`` stands in annotations, which are never evaluated."""
SECONDS = 300
"""A test run of more is killed: the mutant does not end."""
REASONS = Path(__file__).with_name("reasons.json")
RESULTS = Path(__file__).with_name("RESULTS.md")


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    folder: str
    module: str
    operator: str
    arguments: dict[str, Any]
    occurrence: int
    line: int

    def code(self) -> str:
        """Return the module's text with the change; empty where there is none."""
        kind = get_operator(self.operator)(**self.arguments)
        return mutate_code((ROOT / self.module).read_text("utf-8"), kind, self.occurrence) or ""


@dataclass(frozen=True)
class Outcome:
    """A mutant, whether tests noticed it, and its line before and after."""

    mutant: Mutant
    killed: bool
    before: str
    after: str

    @property
    def key(self) -> str:
        """Return the name under which ``reasons.json`` may explain a survivor."""
        return f"{self.mutant.module}: {self.before} -> {self.after}"


def modules(folder: str) -> list[Path]:
    """Return the kernel modules of a folder."""
    found = sorted((ROOT / "operators").glob(KERNELS[folder]))
    return [path for path in found if path.stem not in NO_KERNEL]


def mutants(folder: str) -> dict[tuple[str, tuple[int, int]], list[Mutant]]:
    """Return all mutants of a folder by module and place."""
    places = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as temporary,
        use_db(f"{temporary}/all.sqlite", WorkDB.Mode.create) as db,
    ):
        init(modules(folder), db, {})
        for item in db.work_items:
            (one,) = item.mutations
            if any(part in one.operator_name for part in SKIPPED):
                continue
            module = str(Path(one.module_path).relative_to(ROOT))
            mutant = Mutant(
                folder, module, one.operator_name, dict(one.operator_args), one.occurrence, one.start_pos[0]
            )
            places[module, one.start_pos].append(mutant)
    return dict(places)


def sequence(folders: Iterable[str], seed: int) -> list[Mutant]:
    """Return one random mutant of every place in random order, one folder after the other in turns."""
    rng = random.Random(seed)
    queues = []
    for folder in folders:
        drawn = [rng.choice(some) for _, some in sorted(mutants(folder).items())]
        rng.shuffle(drawn)
        queues.append(drawn)
    longest = max(map(len, queues))
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


def copy_project(target: Path) -> None:
    """Copy what the tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.png", ".venv")
            shutil.copytree(source, target / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, target / name)


def passes(project: Path, folder: str) -> bool:
    """Run the tests of a folder in a copy of the project; return whether all pass.

    A fork of this process runs them: it has imported the heavy libraries already.
    """
    child = os.fork()
    if not child:
        _run_tests(project, TESTS.get(folder, [f"tests/unit/operators/{folder}"]))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run_tests(project: Path, tests: list[str]) -> None:
    """Run pytest in this process, which ends with pytest's exit code."""
    os.setpgrp()
    with Path(os.devnull).open("w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    os.chdir(project)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "operators", "engine")]:
        del sys.modules[name]
    sys.path.insert(0, str(project))
    sys.dont_write_bytecode = True
    options = ["-x", "-q", "-p", "no:cacheprovider", "-k", "not scikit_learn and not estimators"]
    os._exit(int(pytest.main([*options, *tests])))


def try_mutant(project: Path, mutant: Mutant) -> Outcome | None:
    """Apply a mutant to the copy and run the tests; None where the change is none."""
    path, code = project / mutant.module, mutant.code()
    original = (ROOT / mutant.module).read_text("utf-8")
    changed = [
        (old.strip(), new.strip())
        for old, new in zip(original.splitlines(), code.splitlines(), strict=False)
        if old != new
    ]
    if not changed:
        return None
    path.write_text(code, "utf-8")
    try:
        return Outcome(mutant, not passes(project, mutant.folder), *changed[0])
    finally:
        path.write_text(original, "utf-8")


def page(outcomes: list[Outcome], minutes: float, seed: int) -> str:
    """Return ``RESULTS.md``."""
    reasons = json.loads(REASONS.read_text("utf-8")) if REASONS.exists() else {}
    lines = [
        "# Mutation score of the numerical kernels",
        "",
        f"Written by `make mutants` (cosmic-ray, seed {seed}, {minutes:g} minutes): a sample of places, one",
        "mutant each, the folder's unit tests without the slow ones. `reasons.json` explains survivors.",
        "",
        "| folder | tried | killed | survived | of these explained | score |",
        "|---|---|---|---|---|---|",
    ]
    by_folder = defaultdict(list)
    for outcome in outcomes:
        by_folder[outcome.mutant.folder].append(outcome)
    for folder, some in [*sorted(by_folder.items()), ("all", outcomes)]:
        killed = sum(one.killed for one in some)
        explained = sum(not one.killed and one.key in reasons for one in some)
        share = killed / len(some) if some else 0.0
        lines.append(
            f"| {folder} | {len(some)} | {killed} | {len(some) - killed} | {explained} | {share:.0%} |"
        )
    lines += ["", "## Survivors", ""]
    for one in sorted(outcomes, key=lambda one: (one.mutant.module, one.mutant.line)):
        if not one.killed:
            place = f"{one.mutant.module}:{one.mutant.line}"
            reason = reasons.get(one.key, "not explained yet")
            lines.append(f"- `{place}` `{one.before}` -> `{one.after}`: {reason}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw, try and record mutants until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--minutes", type=float, default=15.0, help="time for all mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without a mutant")
    parser.add_argument("--only", default=",".join(KERNELS), help="folders, with commas between")
    arguments = parser.parse_args()
    folders, outcomes = arguments.only.split(","), list[Outcome]()
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary)
        copy_project(project)
        for folder in folders:
            if not arguments.no_baseline and not passes(project, folder):
                raise SystemExit(f"the tests of {folder} fail without a mutant: mend them first")
        end = time.monotonic() + 60 * arguments.minutes
        for mutant in sequence(folders, arguments.seed):
            if time.monotonic() > end:
                break
            outcome = try_mutant(project, mutant)
            if outcome is not None:
                outcomes.append(outcome)
                print("killed  " if outcome.killed else "SURVIVED", outcome.key, flush=True)
    RESULTS.write_text(page(outcomes, arguments.minutes, arguments.seed), "utf-8")


if __name__ == "__main__":
    main()
