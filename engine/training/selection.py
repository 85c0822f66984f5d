"""Selection of hyperparameters without group labels, by the worst inferred group on validation rows.

Candidates are the cells of a grid, or as many random draws from lists and ranges (Bergstra and Bengio, Random
search for hyper-parameter optimization, JMLR 2012). Each may be trained with several seeds; its score is the
mean. A selection reads validation rows only, so the scores on test rows remain unbiased.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.execution.local_executor import LocalExecutor
from engine.recipe.trainers import TrainParams, parse_params, trainer_of
from engine.training.running import TrainSpec, train, trains_on_ray
from engine.training.version import open_version
from operators.base import Executor

SEEDS = 3
"""Trainings of each random candidate: fewer do not distinguish a better one from chance."""
Criterion = Literal["worst_inferred_group", "oracle_worst_true_group"]


@dataclass(frozen=True)
class Candidate:
    """One combination of parameters of the grid, and its score."""

    values: dict[str, Any]
    folder: str
    score: float | None
    """Value of the criterion on the validation rows; None if the training failed."""
    accuracy: float | None
    """Accuracy over all validation rows; it breaks ties."""
    fault: str = ""
    """Reason of a failed training, such as a step size that diverges; empty if it succeeded."""
    by_seed: tuple[float, ...] = ()
    """Score of each seed, whose mean ``score`` is."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, drawn evenly on a logarithmic scale; whole ones if both ends are."""

    low: float
    high: float

    def draw(self, generator: np.random.Generator) -> float | int:
        """Draw one number from the range."""
        found = float(np.exp(generator.uniform(np.log(self.low), np.log(self.high))))
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return round(found) if whole else float(f"{found:.4g}")


Axis = Sequence[Any] | Range


@dataclass(frozen=True)
class Selection:
    """All candidates of a grid, and the best of them."""

    criterion: Criterion
    candidates: tuple[Candidate, ...]
    best: int
    spec: TrainSpec
    """Training of the winner, whose model ``train`` finds."""

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as JSON-able values."""
        cells = [asdict(candidate) for candidate in self.candidates]
        return {"criterion": self.criterion, "best": self.best, "candidates": cells}


def select(
    spec: TrainSpec,
    grid: Mapping[str, Axis],
    executor: Executor,
    *,
    criterion: Criterion = "worst_inferred_group",
    trials: int | None = None,
    seeds: int | None = None,
) -> Selection:
    """Train every cell of a grid of parameters, or random draws, in parallel, and pick the best.

    Each cell is one task if the data is small; otherwise all workers train one cell after the other (see
    ``params.where``). Cells that were trained before are reused. A cell whose training fails is recorded and
    cannot win. Ties go to the higher accuracy, then to the first cell. The table is written to
    ``OUTPUT/models/grid-<digest>.json``.

    Parameters
    ----------
    spec
        The training that all cells share; ``folder`` is ignored.
    grid
        Parameter -> values, such as ``{"lr": [.01, .1], "weight_decay": [0, 1e-3]}``.
    trials
        Number of random candidates; default: every cell of the grid, which then has no range.
    seeds
        Trainings of each candidate, with the seeds from ``spec.seed`` on; default: 1 for a grid, 3
        for random candidates. The winner is that of ``spec.seed``.
    criterion
        ``oracle_worst_true_group`` reads the true groups in ``spec.truth``, for comparisons only.

    Raises
    ------
    InputError
        An unknown key or value, no validation rows, an oracle without truth, or no cell that trains.
    """
    if criterion == "oracle_worst_true_group" and not spec.truth:
        raise InputError("criterion oracle_worst_true_group: name a column with the true groups as truth.")
    version = open_version(spec.dataset)
    # Workers may have another working directory.
    spec = replace(spec, dataset=version.folder, folder=None)
    cells = candidates_of(grid, trials, spec.seed)
    specs = [replace(spec, params=_with_values(spec.params, cell)) for cell in cells]
    n_seeds = seeds or (1 if trials is None else SEEDS)
    every = [replace(one, seed=spec.seed + more) for one in specs for more in range(n_seeds)]
    if trains_on_ray(version, spec.params, executor):
        tried = [try_one(one, criterion, executor) for one in every]
    else:
        jobs = [(one, criterion) for one in every]
        tried = list(executor.map(_try_in_process, jobs, resources=spec.params.resources))
    by_cell = [tried[start : start + n_seeds] for start in range(0, len(tried), n_seeds)]
    found = tuple(replace(_average(own), values=cell) for own, cell in zip(by_cell, cells, strict=True))
    good = [index for index, one in enumerate(found) if one.score is not None]
    if not good:
        raise InputError(
            f"None of the {len(found)} cells of the grid gives a score. The first: {found[0].fault}"
        )
    best = max(good, key=lambda i: (found[i].score or 0.0, found[i].accuracy or 0.0, -i))
    selection = Selection(criterion, found, best, specs[best])
    name = digest([[one.folder for one in tried], criterion])[:12]
    write_json(version.output / "models" / f"grid-{name}.json", selection.to_dict(), root=version.output)
    return selection


def candidates_of(grid: Mapping[str, Axis], trials: int | None, seed: int) -> list[dict[str, Any]]:
    """Return the cells of a grid, or ``trials`` different random draws of one value from every axis.

    There are fewer where fewer different draws exist. Raises InputError for a range without a number of
    trials.
    """
    if trials is None:
        for key, axis in grid.items():
            if isinstance(axis, Range):
                raise InputError(f"--grid {key}: a range has no cells; give --trials, the number of draws.")
        lists = [axis for axis in grid.values() if not isinstance(axis, Range)]
        return [dict(zip(grid, values, strict=True)) for values in itertools.product(*lists)]
    generator = np.random.default_rng([seed, 20])
    found: list[dict[str, Any]] = []
    for _ in range(20 * trials):
        cell = {
            key: axis.draw(generator) if isinstance(axis, Range) else axis[int(generator.integers(len(axis)))]
            for key, axis in grid.items()
        }
        if cell not in found:
            found.append(cell)
        if len(found) == trials:
            break
    return found


def _average(tried: Sequence[Candidate]) -> Candidate:
    """Return one candidate for its trainings with several seeds: the first one with mean scores.

    If one seed fails, the candidate fails: a step size that diverges for some seeds should not be chosen.
    """
    failed = next((one for one in tried if one.score is None), None)
    if failed is not None:
        return failed
    scores = tuple(one.score for one in tried if one.score is not None)
    accuracies = [one.accuracy or 0.0 for one in tried]
    mean = sum(scores) / len(scores)
    return replace(tried[0], score=mean, accuracy=sum(accuracies) / len(accuracies), by_seed=scores)


def try_one(spec: TrainSpec, criterion: Criterion, executor: Executor) -> Candidate:
    """Train and score one candidate."""
    try:
        result = train(spec, executor)
    except InputError as error:
        return Candidate({}, "", None, None, str(error))
    found = result.evaluations.get("validation")
    if found is None:
        fault = "there are no validation rows to select by: set split.validation in the recipe."
        return Candidate({}, result.folder.name, None, None, fault)
    table = found.groupings["inferred" if criterion == "worst_inferred_group" else "true"]
    return Candidate({}, result.folder.name, table.worst_group_accuracy, found.accuracy)


def _try_in_process(job: tuple[TrainSpec, Criterion]) -> Candidate:
    """Train and score one candidate in this process. Runs on a worker."""
    spec, criterion = job
    in_process = spec.params.model_copy(update={"where": "in_process"})
    return try_one(replace(spec, params=in_process), criterion, LocalExecutor())


def _with_values(params: TrainParams, cell: Mapping[str, Any]) -> TrainParams:
    given = params.model_dump(mode="json", exclude_unset=True) | {"trainer": trainer_of(params)}
    return parse_params({**given, **cell})
