"""Mutation score of the numerical kernels: ``make mutants`` samples mutants and writes ``RESULTS.md``.

cosmic-ray finds the mutants. Running all of them takes days, so this module draws one mutant for each of a
random sequence of places, folder after folder, and runs the folder's unit tests on a copy of the project,
until the time is over or enough mutants were tried. The same seed draws the same sequence.

Outcomes are kept in ``outcomes.jsonl`` beside this file, so that several short runs make one sample. One
counts while the code of the mutated module stays as it was; a survivor is tried again when the folder's tests
change.

    python -m tests.mutation [--minutes 15] [--most 1000] [--seed 0] [--only eos,dckm] [--workers 2] [--fresh]
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import hashlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

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

from tests.mutation.named import NAMED

LOADED = (hypothesis, pa, pd, scipy.stats, sklearn.utils.estimator_checks, torch)
"""Imported once, for all forks."""
ROOT = Path(__file__).parents[2]
COPIED = ("operators", "engine", "connectors", "tests", "deploy", "pyproject.toml", "rowsieve")
KERNELS = {
    "dbscan": ("dbscan/*.py", "points.py", "disjoint_sets.py"),
    "grasp": ("grasp/sel*.py",),
    "eos": ("eos/*.py",),
    "dckm": ("dckm/*.py",),
    "lpboost": ("lpboost/*.py",),
    "splits": ("splits/*.py",),
    "weights": ("weights/kernel.py",),
    "metrics": ("metrics/*.py",),
}
NO_KERNEL = {
    "__init__",
    "adaptor",
    "params",
    "probe_job",
    "report",
    "state",
    "operator",
    "at_random",
    "by_domain",
    "by_program",
    "cluster",
    "near_duplicates",
    "shift",
    "sharded",
}
"""Modules of these folders that hold no numerical kernel."""
OPERATORS = "tests/unit/operators"
TESTS = {
    "dbscan": [
        "dbscan/test_dbscan_parts.py",
        "dbscan/test_dbscan.py",
        "dbscan/test_dbscan_lazy.py",
        "dbscan/test_grid_order.py",
        "dbscan/test_graph_dbscan.py",
    ],
    "grasp": ["grasp/test_grasp_selection.py", "grasp/test_grasp.py"],
    "eos": ["eos/test_eos.py", "eos/test_eos_alpha.py"],
    "dckm": ["dckm/test_dckm.py", "dckm/test_dckm_operator.py"],
    "lpboost": ["lpboost"],
    "splits": ["splits/test_splits.py", "splits/test_split.py", "splits/test_splits_operator.py"],
    "weights": ["weights/test_largest_groups.py", "weights/test_weights.py"],
    "metrics": ["metrics", "../engine/runs/test_drift.py", "../engine/training/test_training_scores.py"],
}
"""Tests of each folder below ``tests/unit/operators``, fast ones first."""
SKIPPED = ("BitOr", "Variable", "RemoveDecorator", "ExceptionReplacer", "Is_", "IsNot_")
"""Operators whose mutants are seldom faults: ``|`` stands in annotations, which are never evaluated."""
SECONDS = 240
"""A test run that takes more CPU time is ended: the mutant loops. Wall time would count a busy machine."""
REASONS = Path(__file__).with_name("reasons.json")
RESULTS = Path(__file__).with_name("RESULTS.md")
KEPT = Path(__file__).with_name("outcomes.jsonl")


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    folder: str
    module: str
    operator: str
    arguments: str
    occurrence: int
    line: int = dataclasses.field(compare=False)
    """Its line when it was tried: docstrings that change move it, and it is still the same mutant."""

    def code(self) -> str:
        """Return the module's text with the change; empty where there is none."""
        kind = get_operator(self.operator)(**json.loads(self.arguments))
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


def digest(paths: Iterable[Path]) -> str:
    """Return a hash of the code of Python files, whatever their comments and docstrings."""
    return hashlib.sha256("\0".join(code_of(path.read_text("utf-8")) for path in paths).encode()).hexdigest()[
        :16
    ]


def code_of(text: str) -> str:
    """Return the syntax tree of a module as text, without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [one for one in body if not _is_text(one)]
            node.body = kept  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def digest_of_tests(folder: str) -> str:
    """Return a hash of the test files of a folder."""
    paths = [ROOT / OPERATORS / name for name in TESTS[folder]]
    return digest(file for path in paths for file in (sorted(path.glob("test_*.py")) or [path]))


class Kept:
    """The outcomes of earlier runs that still count, in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.outcomes: dict[Mutant, Outcome] = {}
        self.tested: set[str] = set()
        tests = {folder: digest_of_tests(folder) for folder in KERNELS}
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            record = json.loads(line)
            mutant = Mutant(**record["mutant"])
            module, same_tests = ROOT / mutant.module, record["tests"] == tests[mutant.folder]
            if (
                record["before"].startswith(("@", "if TYPE_CHECKING"))
                or Path(mutant.module).stem in NO_KERNEL
            ):
                continue
            if module.exists() and record["source"] == digest([module]) and (record["killed"] or same_tests):
                self.outcomes.pop(mutant, None)  # so that the key has the newest line
                self.outcomes[mutant] = Outcome(mutant, record["killed"], record["before"], record["after"])
            if same_tests:
                self.tested.add(mutant.folder)

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        mutant = outcome.mutant
        self.outcomes[mutant] = outcome
        record = dataclasses.asdict(outcome) | {
            "source": digest([ROOT / mutant.module]),
            "tests": digest_of_tests(mutant.folder),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def modules(folder: str) -> list[Path]:
    """Return the kernel modules of a folder."""
    found = [path for pattern in KERNELS[folder] for path in sorted((ROOT / "operators").glob(pattern))]
    return [path for path in found if path.stem not in NO_KERNEL]


@cache
def lines(module: str) -> list[str]:
    """Return the lines of a module."""
    return (ROOT / module).read_text("utf-8").splitlines()


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
            if lines(module)[one.start_pos[0] - 1].lstrip().startswith(("@", "if TYPE_CHECKING")):
                continue  # neither what a decorator is given, such as frozen=True, nor types change a figure
            given = json.dumps(dict(one.operator_args), sort_keys=True)
            mutant = Mutant(folder, module, one.operator_name, given, one.occurrence, one.start_pos[0])
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
    """Copy what the tests need; compiled modules too, which Python takes by the time of their source."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("*.png", ".venv")
            shutil.copytree(source, target / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, target / name)


def start_tests(project: Path, folder: str) -> int:
    """Run the tests of a folder in a copy of the project; return the id of the process that runs them.

    It is a fork of this process, which has imported the heavy libraries already.
    """
    child = os.fork()
    if not child:
        _run_tests(project, [f"{OPERATORS}/{path}" for path in TESTS[folder]])
    return child


def passes(project: Path, folder: str) -> bool:
    """Return whether the tests of a folder pass in a copy of the project."""
    return os.waitstatus_to_exitcode(os.waitpid(start_tests(project, folder), 0)[1]) == 0


def _run_tests(project: Path, tests: list[str]) -> None:
    """Run pytest in this process, which ends with pytest's exit code."""
    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    with Path(os.devnull).open("w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    os.chdir(project)
    for name in [name for name in sys.modules if name.split(".")[0] in COPIED]:
        del sys.modules[name]
    sys.path.insert(0, str(project))
    sys.dont_write_bytecode = True
    skipped = "not scikit_learn_conventions and not they_are_estimators"
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile", "mutants", "-k", skipped]
    os._exit(int(pytest.main([*options, *tests])))


@dataclass
class Trial:
    """The tests of one mutant, which run in a process of their own, on a copy of the project."""

    project: Path
    mutant: Mutant
    before: str
    after: str
    process: int

    def outcome(self) -> Outcome | None:
        """Return the outcome and restore the copy; None while the tests run."""
        done, status = os.waitpid(self.process, os.WNOHANG)
        if not done:
            return None
        shutil.copy(ROOT / self.mutant.module, self.project / self.mutant.module)
        return Outcome(self.mutant, os.waitstatus_to_exitcode(status) != 0, self.before, self.after)


def start_trial(project: Path, mutant: Mutant) -> Trial | None:
    """Apply a mutant to a copy of the project and start the tests; None where the change is none."""
    code, original = mutant.code(), (ROOT / mutant.module).read_text("utf-8")
    changed = [
        (old.strip(), new.strip())
        for old, new in zip(original.splitlines(), code.splitlines(), strict=False)
        if old != new
    ]
    if not changed:
        return None
    (project / mutant.module).write_text(code, "utf-8")
    return Trial(project, mutant, *changed[0], start_tests(project, mutant.folder))


def try_mutants(projects: Sequence[Path], mutants: Iterable[Mutant], end: float) -> Iterator[Outcome]:
    """Yield the outcome of each mutant, one at a time in each copy of the project, until ``end``."""
    free, running, queue = list(projects), list[Trial](), iter(mutants)
    while True:
        while free and time.monotonic() < end and (mutant := next(queue, None)) is not None:
            if trial := start_trial(free[-1], mutant):
                running.append(trial)
                free.pop()
        if not running:
            return
        time.sleep(0.05)
        for trial in running[:]:
            if outcome := trial.outcome():
                running.remove(trial)
                free.append(trial.project)
                yield outcome


def page(outcomes: list[Outcome], seed: int) -> str:
    """Return the text of ``RESULTS.md``."""
    reasons = json.loads(REASONS.read_text("utf-8")) if REASONS.exists() else {}
    lines = [
        "# Mutation score of the numerical kernels",
        "",
        f"Written by `make mutants` on {date.today()} (cosmic-ray, last seed {seed}): a sample of places,",
        "one mutant each, tried by the folder's unit tests without the slow ones; it counts while the code",
        "of its module stays as it was. `reasons.json` explains survivors; those that change",
        "no result, at most the time, are called equivalent, and the last column leaves them out. Below 100",
        "mutants it says little of a folder: `make mutants` again goes on where it ended (`outcomes.jsonl`).",
        "",
        "| folder | tried | killed | survived | explained | equivalent | score | without equivalent ones |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_folder = defaultdict(list)
    for outcome in outcomes:
        by_folder[outcome.mutant.folder].append(outcome)
    for folder, some in [*sorted(by_folder.items()), ("all", outcomes)]:
        killed = sum(one.killed for one in some)
        explained = sum(not one.killed and one.key in reasons for one in some)
        same = sum(not one.killed and reasons.get(one.key, "").startswith("equivalent") for one in some)
        shares = [f"{killed / max(1, n):.0%}" for n in (len(some), len(some) - same)]
        figures = [folder, len(some), killed, len(some) - killed, explained, same, *shares]
        lines.append(f"| {' | '.join(map(str, figures))} |")
    lines += ["", "## Survivors", ""]
    for one in sorted(outcomes, key=lambda one: (one.mutant.module, one.mutant.line)):
        if not one.killed:
            place = f"{one.mutant.module}:{one.mutant.line}"
            reason = reasons.get(one.key, "not explained yet")
            lines.append(f"- `{place}` `{one.before}` -> `{one.after}`: {reason}")
    lines += [
        "",
        "## Mutants that readers named",
        "",
        "`test_named.py` tries each of them; its test fails.",
        "",
    ]
    lines += ["| module | mutant | test |", "|---|---|---|"]
    lines += [f"| `{one.module}` | `{one.old}` -> `{one.new}` | `{one.tests}` |" for one in NAMED]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw, try and record mutants until the time is over."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--minutes", type=float, default=15.0, help="time for all mutants")
    parser.add_argument("--most", type=int, default=1000, help="number of mutants")
    parser.add_argument("--workers", type=int, default=1, help="mutants that are tried at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without a mutant")
    parser.add_argument("--fresh", action="store_true", help="forget the outcomes of earlier runs")
    parser.add_argument("--only", default=",".join(KERNELS), help="folders, with commas between")
    arguments = parser.parse_args()
    folders = arguments.only.split(",")
    if arguments.fresh:
        KEPT.unlink(missing_ok=True)
    kept = Kept(KEPT)
    with tempfile.TemporaryDirectory() as temporary:
        projects = [Path(temporary) / str(worker) for worker in range(arguments.workers)]
        for project in projects:
            copy_project(project)
        for folder in folders:
            if folder in kept.tested or arguments.no_baseline:
                continue
            if not passes(projects[0], folder):
                raise SystemExit(f"the tests of {folder} fail without a mutant: mend them first")
        end = time.monotonic() + 60 * arguments.minutes
        drawn = [one for one in sequence(folders, arguments.seed) if one not in kept.outcomes]
        for outcome in try_mutants(projects, drawn[: arguments.most], end):
            kept.add(outcome)
            print("killed  " if outcome.killed else "SURVIVED", outcome.key, flush=True)
    RESULTS.write_text(page(list(kept.outcomes.values()), arguments.seed), "utf-8")


if __name__ == "__main__":
    main()
