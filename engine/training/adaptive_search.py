"""A search that learns from its earlier candidates: Optuna draws them and gives poor ones up.

Candidates are drawn in batches of ``BATCH``, whose trainings run in parallel. The batch is fixed, and the
sampler has the seed of the training, so that any number of workers tries the same candidates. What Optuna is
told of a candidate is its mean score after each seed, the budget of the other samplers too.

Sampler: TPE; pruner: MedianPruner.

Source: Bergstra et al., Algorithms for hyper-parameter optimization, NeurIPS 2011; Akiba et al., Optuna, KDD
2019.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.recipe.search import Axis, Range, with_values
from engine.training.candidates import Candidate, TryEach, average, train_further_seed
from engine.training.training_run import TrainSpec

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import Trial

BATCH = 4
"""Candidates that are drawn before the results of any of them are known."""


def search_by_tpe(
    spec: TrainSpec, axes: Mapping[str, Axis], trials: int, n_seeds: int, prune: bool, try_each: TryEach
) -> tuple[list[dict[str, Any]], list[list[Candidate]]]:
    """Draw and train candidates; return their values, and their trainings by seed, fewer where pruned."""
    study = _study(spec.seed)
    cells: list[dict[str, Any]] = []
    found: list[list[Candidate]] = []
    while len(cells) < trials:
        size = min(BATCH, trials - len(cells))
        drawn = [study.ask(_distributions(axes)) for _ in range(size)]
        own = [{key: _value(axis, trial.params[key]) for key, axis in axes.items()} for trial in drawn]
        specs = [replace(spec, params=with_values(spec.params, cell)) for cell in own]
        found += _train_batch(study, drawn, specs, n_seeds, prune, try_each)
        cells += own
    return cells, found


def _study(seed: int) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=2 * BATCH, constant_liar=True)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=BATCH)
    return optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)


def _distributions(axes: Mapping[str, Axis]) -> dict[str, BaseDistribution]:
    """Return Optuna's distribution of each key; of a list, of the positions of its values."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, BaseDistribution] = {}
    for key, axis in axes.items():
        if not isinstance(axis, Range):
            found[key] = CategoricalDistribution(tuple(range(len(axis))))
        elif axis.is_whole:
            found[key] = IntDistribution(int(axis.low), int(axis.high), log=True)
        else:
            found[key] = FloatDistribution(axis.low, axis.high, log=True)
    return found


def _value(axis: Axis, drawn: Any) -> Any:
    """Return the value of a key for what Optuna has drawn; floats have four digits, as in other draws."""
    if not isinstance(axis, Range):
        return axis[int(drawn)]
    return int(drawn) if axis.is_whole else min(max(float(f"{drawn:.4g}"), axis.low), axis.high)


def _train_batch(
    study: Study,
    drawn: Sequence[Trial],
    specs: Sequence[TrainSpec],
    n_seeds: int,
    prune: bool,
    try_each: TryEach,
) -> list[list[Candidate]]:
    """Train a batch seed by seed, and tell the study what came out."""
    from optuna.trial import TrialState

    found: list[list[Candidate]] = [[] for _ in specs]
    alive = list(range(len(specs)))
    for more in range(n_seeds):
        train_further_seed(specs, alive, more, try_each, found)
        ended = more == n_seeds - 1
        for index in list(alive):
            score = average(found[index]).score
            if score is None:
                study.tell(drawn[index], state=TrialState.FAIL)
                alive.remove(index)
                continue
            drawn[index].report(score, more)
            if ended:
                study.tell(drawn[index], score)
            elif prune and drawn[index].should_prune():
                study.tell(drawn[index], state=TrialState.PRUNED)
                alive.remove(index)
    return found
