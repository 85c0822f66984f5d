"""Selection of hyperparameters without group labels, by the worst inferred group on validation rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.execution.local_executor import LocalExecutor
from engine.recipe.trainers import TrainParams, parse_params, trainer_of
from engine.training.running import TrainSpec, train, trains_on_ray
from engine.training.version import open_version
from operators.base import Executor

Criterion = Literal["worst_inferred_group", "oracle_worst_true_group"]


@dataclass(frozen=True)
class Candidate:
    """One combination of parameters of the grid, and its score."""

    values: dict[str, Any]
    folder: str
    score: float | None
    """Of the criterion on the validation rows; None where the training failed."""
    accuracy: float | None
    """Plain accuracy there; it breaks ties."""
    fault: str = ""
    """Why the training failed, such as a step size that diverges."""


@dataclass(frozen=True)
class Selection:
    """All candidates of a grid, and the best of them."""

    criterion: Criterion
    candidates: tuple[Candidate, ...]
    best: int
    spec: TrainSpec
    """That of the winner: ``train`` finds its model."""

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as JSON-able values."""
        cells = [asdict(candidate) for candidate in self.candidates]
        return {"criterion": self.criterion, "best": self.best, "candidates": cells}


def select(
    spec: TrainSpec,
    grid: Mapping[str, Sequence[Any]],
    executor: Executor,
    *,
    criterion: Criterion = "worst_inferred_group",
) -> Selection:
    """Train every cell of a grid of parameters, in parallel, and pick the best.

    Small data: each cell is one task. More (``params.where``): one cell after the other, each on all workers.
    Cells that are trained already are found again. A cell whose training fails is recorded and cannot win.
    Ties go to the higher accuracy, then to the first cell. The table goes to
    ``OUTPUT/models/grid-<digest>.json``.

    Parameters
    ----------
    spec : what all cells have in common; ``folder`` is ignored.
    grid : parameter -> values, such as ``{"lr": [.01, .1], "weight_decay": [0, 1e-3]}``.
    criterion : ``oracle_worst_true_group`` looks at ``spec.truth`` and is no inference: for tables alone.

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
    cells = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    specs = [replace(spec, params=_params(spec.params, cell)) for cell in cells]
    if trains_on_ray(version, spec.params, executor):
        tried = [try_one(one, criterion, executor) for one in specs]
    else:
        jobs = [(one, criterion) for one in specs]
        tried = list(executor.map(_try_alone, jobs, resources=spec.params.resources))
    found = tuple(replace(one, values=cell) for one, cell in zip(tried, cells, strict=True))
    good = [index for index, one in enumerate(found) if one.score is not None]
    if not good:
        raise InputError(
            f"None of the {len(found)} cells of the grid gives a score. The first: {found[0].fault}"
        )
    best = max(good, key=lambda i: (found[i].score or 0.0, found[i].accuracy or 0.0, -i))
    selection = Selection(criterion, found, best, specs[best])
    name = digest([[one.folder for one in found], criterion])[:12]
    write_json(version.output / "models" / f"grid-{name}.json", selection.to_dict())
    return selection


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


def _try_alone(job: tuple[TrainSpec, Criterion]) -> Candidate:
    """Train and score one candidate in this process. Runs on a worker."""
    spec, criterion = job
    alone = spec.params.model_copy(update={"where": "in_process"})
    return try_one(replace(spec, params=alone), criterion, LocalExecutor())


def _params(params: TrainParams, cell: Mapping[str, Any]) -> TrainParams:
    given = params.model_dump(mode="json", exclude_unset=True) | {"trainer": trainer_of(params)}
    return parse_params({**given, **cell})
