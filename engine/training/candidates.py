"""A candidate of a search for parameters, and the mean of its trainings with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.training.training_run import TrainSpec


@dataclass(frozen=True)
class Candidate:
    """One combination of parameters of the grid, and its score."""

    values: dict[str, Any]
    folder: str
    score: float | None
    """Value of the criterion on the validation rows, of a regression the negative loss; None if the training
    failed."""
    accuracy: float | None
    """Accuracy over all validation rows, of a regression the negative loss; it breaks ties."""
    fault: str = ""
    """Reason of a failed training, such as a step size that diverges; empty if it succeeded."""
    by_seed: tuple[float, ...] = ()
    """Score of each seed, whose mean ``score`` is."""
    pruned: bool = False
    """Whether later seeds were left out because earlier ones scored in the lower half. It cannot win."""


def average(tried: Sequence[Candidate]) -> Candidate:
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


TryEach = Callable[[Sequence[TrainSpec]], list[Candidate]]
"""Trains each of several specifications."""


def train_further_seed(
    specs: Sequence[TrainSpec],
    alive: Sequence[int],
    more: int,
    try_each: TryEach,
    found: Sequence[list[Candidate]],
) -> None:
    """Train the candidates at the positions ``alive`` with one more seed; append what comes out to ``found``.

    ``more`` is added to the seed of each specification.
    """
    tried = try_each([replace(specs[i], seed=specs[i].seed + more) for i in alive])
    for index, one in zip(alive, tried, strict=True):
        found[index].append(one)
