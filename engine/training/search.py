"""Search for parameters of a training without group labels, by the worst inferred group on validation rows.

Candidates are the cells of a grid, or as many random draws from lists and ranges (Bergstra and Bengio, Random
search for hyper-parameter optimization, JMLR 2012). Each may be trained with several seeds; its score is the
mean. A search reads validation rows only, so the scores on test rows remain unbiased.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.events import Event, Kind, Listener, silent
from engine.core.json_files import write_json
from engine.execution.local_executor import LocalExecutor
from engine.recipe.search import (
    ON_COMMAND_LINE,
    Axis,
    Range,
    Sampler,
    check_search,
    n_seeds,
    with_values,
)
from engine.training.candidates import Candidate, TryEach, average, train_further_seed
from engine.training.data.version import Version, open_version
from engine.training.fit.job import training_fingerprint
from engine.training.training_run import TrainSpec, train, trains_on_ray
from operators.base import Executor, OperatorError

Criterion = Literal["worst_inferred_group", "oracle_worst_true_group"]


@dataclass(frozen=True)
class SearchResult:
    """All candidates of a grid, and the best of them."""

    criterion: Criterion
    candidates: tuple[Candidate, ...]
    best: int
    spec: TrainSpec
    """Training of the winner, whose model ``train`` finds."""
    sampler: Sampler = "grid"
    seeds: int = 1
    """Trainings of each candidate that was not pruned."""

    def sentence(self) -> str:
        """Return what was searched, and what won."""
        best = self.candidates[self.best]
        chosen = ", ".join(f"{key}={value}" for key, value in best.values.items())
        pruned = sum(one.pruned for one in self.candidates)
        failed = sum(one.score is None for one in self.candidates)
        counts = {"pruned": pruned, "failed": failed}
        told = "".join(f", {count} of them {what}" for what, count in counts.items() if count)
        mean = f" (mean of {self.seeds} seeds)" if self.seeds > 1 else ""
        return f"best of {len(self.candidates)} cells{told}{mean}: {chosen}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-able values."""
        cells = [asdict(candidate) for candidate in self.candidates]
        return {
            "criterion": self.criterion,
            "sampler": self.sampler,
            "seeds": self.seeds,
            "best": self.best,
            "candidates": cells,
        }


def search_parameters(
    spec: TrainSpec,
    grid: Mapping[str, Axis],
    executor: Executor,
    *,
    criterion: Criterion = "worst_inferred_group",
    trials: int | None = None,
    seeds: int | None = None,
    prune: bool = False,
    listener: Listener = silent,
    sampler: Sampler | None = None,
    names: Mapping[str, str] = ON_COMMAND_LINE,
) -> SearchResult:
    """Train every cell of a grid of parameters, or random draws, in parallel, and pick the best.

    Each cell is one task if the data is small, and so are all cells that share base models, such as those of
    another ``alpha`` of ``boosted_cvar``; otherwise all workers train one cell after the other (see
    ``params.where``). Equal cells are tried once, and those that were trained before are reused. A cell whose
    training fails is recorded and cannot win. Ties go to the higher accuracy, then to the first cell. The
    table is written to ``OUTPUT/models/grid-<digest>.json``.

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
    prune
        After each seed, only the better half of the candidates, by their mean so far, is trained with the
        next (successive halving, Jamieson and Talwalkar 2016, with seeds as the budget). This works for
        every model, also one without epochs. The winner has been trained with every seed.
    sampler
        ``grid``, ``random``, or ``tpe``, by :mod:`engine.training.adaptive_search`; default: random with
        ``trials``, else grid.
    listener
        Gets an event of the operator ``search`` after every training.
    names
        What the options are called where the search was asked for, for errors.
    criterion
        ``oracle_worst_true_group`` reads the true groups in ``spec.truth``, for comparisons only.

    Raises
    ------
    InputError
        An unknown key or value, no validation rows, an oracle without truth, or no cell that trains.
    """
    if criterion == "oracle_worst_true_group" and not spec.truth:
        raise InputError("criterion oracle_worst_true_group: name a column with the true groups as truth.")
    check_search(grid, sampler, trials, seeds, prune, names)
    repeats = n_seeds(trials, seeds)
    version = open_version(spec.dataset)
    # Workers may have another working directory.
    spec = replace(spec, dataset=version.folder, folder=None)
    on_ray = trains_on_ray(version, spec.params, executor)
    progress = SearchProgress(listener)
    try_each = partial(_try_each, criterion, executor, on_ray, progress, version)
    if sampler == "tpe" and trials is not None:
        # Not at the top: Optuna is an extra.
        from engine.training.adaptive_search import search_by_tpe

        progress.expect(trials * repeats)
        cells, by_cell = search_by_tpe(spec, grid, trials, repeats, prune, try_each)
    else:
        cells = candidates_of(grid, trials, spec.seed)
        progress.expect(_count_trainings(len(cells), repeats, prune))
        tried = [replace(spec, params=with_values(spec.params, cell)) for cell in cells]
        by_cell = _try_all(tried, repeats, prune, try_each)
    progress.finish()
    specs = [replace(spec, params=with_values(spec.params, cell)) for cell in cells]
    found = tuple(_candidate(own, cell, repeats) for own, cell in zip(by_cell, cells, strict=True))
    best = _best(found)
    how = sampler or ("grid" if trials is None else "random")
    result = SearchResult(criterion, found, best, specs[best], how, repeats)
    name = digest([[one.folder for own in by_cell for one in own], cells, criterion])[:12]
    write_json(version.output / "models" / f"grid-{name}.json", result.to_dict(), root=version.output)
    return result


class SearchProgress:
    """Counts the trainings of a search and tells a listener."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._total = listener, 0
        self._done, self._started = 0, time.monotonic()

    def expect(self, total: int) -> None:
        """Begin with the number of trainings if none is pruned or fails."""
        self._total = total
        self._emit("start")

    def add(self) -> None:
        """Count a training that has ended."""
        self._done += 1
        self._emit("progress")

    def finish(self) -> None:
        """Tell that the search has ended."""
        self._total = self._done
        self._emit("finish")

    def _emit(self, kind: Kind) -> None:
        seconds = time.monotonic() - self._started
        self._listener(Event(kind, "search", self._done, self._total, seconds=seconds, unit="trainings"))


def _count_trainings(n_cells: int, n_seeds: int, prune: bool) -> int:
    """Return how many trainings a search takes if none fails."""
    total, alive = 0, n_cells
    for _ in range(n_seeds):
        total += alive
        alive = -(-alive // 2) if prune else alive
    return total


def _candidate(tried: Sequence[Candidate], cell: Mapping[str, Any], n_seeds: int) -> Candidate:
    """Return a cell with its mean score over the seeds that it was trained with."""
    found = average(tried)
    return replace(found, values=dict(cell), pruned=found.score is not None and len(tried) < n_seeds)


def _best(found: Sequence[Candidate]) -> int:
    """Return the position of the winner. Raises InputError if no candidate has been trained to the end."""
    good = [index for index, one in enumerate(found) if one.score is not None and not one.pruned]
    if good:
        return max(good, key=lambda i: (*_order(found[i]), -i))
    fault = next((one.fault for one in found if one.fault), "")
    n_pruned = sum(one.pruned for one in found)
    others = f" {n_pruned} others were pruned before: search without --prune." if n_pruned else ""
    raise InputError(
        f"None of the {len(found)} cells of the grid gives a score. The first fault: {fault}{others}"
    )


def _try_all(
    specs: Sequence[TrainSpec],
    n_seeds: int,
    prune: bool,
    try_each: TryEach,
) -> list[list[Candidate]]:
    """Return the trainings of every candidate by seed; fewer of a candidate that was pruned."""
    if not prune:
        every = [replace(one, seed=one.seed + more) for one in specs for more in range(n_seeds)]
        tried = try_each(every)
        return [tried[start : start + n_seeds] for start in range(0, len(tried), n_seeds)]
    found: list[list[Candidate]] = [[] for _ in specs]
    alive = list(range(len(specs)))
    for more in range(n_seeds):
        train_further_seed(specs, alive, more, try_each, found)
        means = {index: average(found[index]) for index in alive}
        good = [index for index in alive if means[index].score is not None]
        alive = sorted(good, key=lambda i: (*_order(means[i]), -i), reverse=True)[: -(-len(good) // 2)]
        alive = sorted(alive)
    return found


def _order(candidate: Candidate) -> tuple[float, float]:
    """Return the key by which candidates that were trained are compared: the larger the better."""
    return candidate.score or 0.0, candidate.accuracy or 0.0


def _try_each(
    criterion: Criterion,
    executor: Executor,
    on_ray: bool,
    progress: SearchProgress,
    version: Version,
    specs: Sequence[TrainSpec],
) -> list[Candidate]:
    """Train and score candidates: one after the other on all workers, or each training in one task."""
    if not specs:
        return []
    if on_ray:
        tried: Iterable[Candidate] = (try_one(one, criterion, executor) for one in specs)
    else:
        tried = _try_in_tasks(specs, criterion, executor, version)
    found = []
    for one in tried:
        found.append(one)
        progress.add()
    return found


def _try_in_tasks(
    specs: Sequence[TrainSpec], criterion: Criterion, executor: Executor, version: Version
) -> Iterator[Candidate]:
    """Yield the candidates in their order; those that share a training, in one folder, are one task."""
    groups: dict[str, list[int]] = {}
    for index, spec in enumerate(specs):
        groups.setdefault(_training_of(spec, version, index), []).append(index)
    jobs = [([specs[index] for index in members], criterion) for members in groups.values()]
    found: dict[int, Candidate] = {}
    wanted = 0
    tried = executor.map(_try_in_process, jobs, resources=specs[0].params.resources)
    for members, candidates in zip(groups.values(), tried, strict=True):
        found.update(zip(members, candidates, strict=True))
        while wanted in found:
            yield found[wanted]
            wanted += 1


def _training_of(spec: TrainSpec, version: Version, index: int) -> str:
    """Return a text that is the same for candidates that share base models; one that fails has its own."""
    try:
        return training_fingerprint(version, spec.params, spec.seed)
    except (InputError, OperatorError):
        return str(index)


def candidates_of(grid: Mapping[str, Axis], trials: int | None, seed: int) -> list[dict[str, Any]]:
    """Return the different cells of a grid, or ``trials`` different draws of one value from every axis.

    There are fewer where fewer different draws exist. A range needs a number of trials.
    """
    if trials is None:
        lists = [axis for axis in grid.values() if not isinstance(axis, Range)]
        cells = [dict(zip(grid, values, strict=True)) for values in itertools.product(*lists)]
        return [cell for index, cell in enumerate(cells) if cell not in cells[:index]]
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


def try_one(spec: TrainSpec, criterion: Criterion, executor: Executor) -> Candidate:
    """Train and score one candidate."""
    try:
        result = train(spec, executor)
    except InputError as error:
        return Candidate({}, "", None, None, str(error))
    found = result.scores.get("validation")
    if found is None:
        fault = "there are no validation rows to select by: set split.validation in the recipe."
        return Candidate({}, result.folder.name, None, None, fault)
    worst, mean = found.ranking("inferred" if criterion == "worst_inferred_group" else "true")
    return Candidate({}, result.folder.name, worst, mean)


def _try_in_process(job: tuple[Sequence[TrainSpec], Criterion]) -> list[Candidate]:
    """Train once and score candidates that share this training, in this process. Runs on a worker."""
    specs, criterion = job
    found: list[Candidate] = []
    for index, spec in enumerate(specs):
        if spec in specs[:index]:
            found.append(found[specs.index(spec)])
            continue
        in_process = spec.params.model_copy(update={"where": "in_process"})
        found.append(try_one(replace(spec, params=in_process), criterion, LocalExecutor()))
    return found
