"""Figures that were computed before are kept, so that `make paper` goes on where it was stopped.

A cell is one problem scored by every method. Its file's name covers all code that it depends on: an
edit to a method computes its cells anew. The files lie under ``build/paper``; ``make clean`` removes them.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core.json_files import write_json
from engine.runs.compare.scores import score
from tests.on_arrays import counts_of_rows
from tests.paper.data_sets import Problem, SkippedError, load
from tests.paper.methods import methods_for

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "paper"
METHOD_CODE = ("dbscan", "embed", "gradients", "grasp", "groups", "metrics", "models", "probe", "weights")
OWN_CODE = ("cells", "data_sets", "synthetic", "test_grasp_synthetic", "methods")
METHODS = (
    *(f"operators/{name}" for name in METHOD_CODE),
    "engine/runs/compare/scores.py",
    "connectors/digits.py",
    *(f"tests/paper/{name}.py" for name in OWN_CODE),
)
"""Files that groups and outliers depend on."""
TRAINING = (
    "operators/lpboost",
    "engine/recipe/trainers",
    *(f"engine/training/{name}" for name in ("data", "fit", "rules")),
    "engine/training/evaluation/metric_sums.py",
)
"""Further files that trained models depend on."""


@dataclass(frozen=True)
class Cell:
    """A problem: data set, its seed, the seed of training."""

    data: str
    seed: int
    training_seed: int


Figures = dict[str, dict[str, float]]
"""Method -> score -> figure; nan where there is none."""


def figures(cell: Cell, code: str, say: Callable[[str], None]) -> Figures:
    """Scores of all methods on a problem, from the file or computed. Raises SkippedError."""
    name = f"{cell.data}-{cell.seed}-{cell.training_seed}-{code}.json".replace(" ", "-")
    path = KEPT / name
    if not path.exists():
        started = time.perf_counter()
        problem = load(cell.data, cell.seed, cell.training_seed)
        methods = methods_for(problem, table_5=cell.data.startswith("synthetic"))
        write_json(path, evaluate(problem, methods))
        seconds = time.perf_counter() - started
        say(f"{cell.data}, seed {cell.seed}, training {cell.training_seed}: {seconds:.0f} s")
    found = json.loads(path.read_text("utf-8"))
    return {
        method: {k: math.nan if v is None else v for k, v in row.items()} for method, row in found.items()
    }


def kept(name: str, compute: Callable[[], Any], code: Sequence[str]) -> Any:
    """A JSON value from its file, or computed; an edit to ``code``, files and folders, computes it anew."""
    path = KEPT / f"{name}-{code_digest(code)}.json".replace(" ", "-").replace(",", "").replace("%", "")
    if not path.exists():
        write_json(path, compute())
    return json.loads(path.read_text("utf-8"))


def evaluate(problem: Problem, methods: Mapping[str, Callable[[Problem], Any]]) -> dict[str, Any]:
    """Method -> score -> figure; None where there is none."""
    rows = {}
    for name, method in methods.items():
        started = time.process_time()
        labels = method(problem)
        seconds = time.process_time() - started
        scores = score(counts_of_rows(problem.y, labels, problem.group, problem.damaged))
        row = {
            "ari": scores.ari,
            "floor": scores.floor,
            "minority_recall": scores.minority_recall,
            "outlier_precision": scores.outlier_precision,
            "outlier_recall": scores.outlier_recall,
            "groups": float(len(scores.sizes)),
            "noise": scores.noise / len(labels),
            "seconds": seconds,
        }
        rows[name] = {key: None if math.isnan(value) else value for key, value in row.items()}
    return rows


def all_figures(cells: list[Cell], say: Callable[[str], None]) -> tuple[dict[Cell, Figures], dict[str, str]]:
    """Figures of every cell, and data set -> why it is not there."""
    code = code_digest(METHODS)
    found: dict[Cell, Figures] = {}
    skipped: dict[str, str] = {}
    for cell in cells:
        if cell.data in skipped:
            continue
        try:
            found[cell] = figures(cell, code, say)
        except SkippedError as reason:
            skipped[cell.data] = str(reason)
            say(f"{cell.data}: skipped, {reason}")
    return found, skipped


def code_digest(code: Sequence[str]) -> str:
    """Of every file in it; a folder stands for its modules."""
    digest = hashlib.sha256()
    for place in code:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
