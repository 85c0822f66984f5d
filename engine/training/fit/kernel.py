"""One training, as every worker of a group carries it out: from rows and parameters to models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from connectors.storage import ObjectPath
from engine.core.digests import digest
from engine.recipe.pretrained import folder_of
from engine.recipe.trainers import LINEAR, TrainParams
from engine.training.data.rows import Counts, Dataset
from engine.training.fit.callbacks import Callback, PhaseEnd
from engine.training.fit.checkpoint import MODELS, Checkpoints, ModelStore
from engine.training.fit.epochs import Network
from engine.training.fit.estimators import EstimatorLearner, check_model
from engine.training.fit.learner import model_state
from engine.training.fit.least_squares import MAX_FEATURES, solve
from engine.training.fit.methods import method_of
from engine.training.fit.pretrained import pretrained_spec
from engine.training.fit.session import PhaseLearner, Session, count_rows
from engine.training.objectives import ClassLosses, RowLosses, TargetScale, number_losses, objective_of
from operators.arrays import Float64, Int64
from operators.base import OperatorError
from operators.communicator import Communicator, SingleProcess, Slots
from operators.models import ModelSpec, Standardize, build
from operators.models.pretrained import PretrainedNetwork
from operators.probe.census import take_census
from operators.probe.kernel import repeatable, train
from operators.probe.settings import Settings

CHECKPOINTS = "checkpoints"
CHECKPOINT_FORMAT = 2
"""Raised when a checkpoint's tensors get another meaning: older ones are then ignored."""


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """Result of a training in memory, equal on every worker."""

    spec: ModelSpec
    states: list[dict[str, Tensor]]
    """Base models; empty where a folder holds them."""
    n_models: int
    selection_losses: np.ndarray[Any, np.dtype[np.uint8]]
    """(m, t) 0/1 losses of the base models on the validation rows; on the train rows where there are none."""
    selection_rows: Int64
    """(m,) their row ids."""
    selection_weights: Float64
    """(m,) how often each counts in the choice of the mixture: the published weights, or 1 without them."""
    selection_split: str
    counts: Counts
    curve: list[dict[str, Any]]
    """Mean loss of each epoch, with its phase."""
    best_epoch: int | None
    """The epoch that ``keep: best`` chose."""
    target_scale: TargetScale | None = None
    """The map from the outputs of a regression to predictions; None for a classification."""


def model_spec(params: TrainParams, data: Dataset) -> ModelSpec:
    """Return the model that the parameters describe, with the shape of these rows.

    Raises OperatorError for a classification of one class.
    """
    is_regression = params.task == "regression"
    if not is_regression and data.n_classes < 2:
        raise OperatorError(
            "The rows have one class, so there is nothing to learn. Train on rows of at least two."
        )
    return ModelSpec(
        model="logistic" if params.model == LINEAR else params.model,  # either is one linear layer
        hidden=params.hidden,
        standardize=params.scales_features,
        blocks=data.widths if params.scales_features and max(data.widths, default=1) > 1 else (),
        n_features=data.n_features,
        n_classes=1 if is_regression else data.n_classes,
        pretrained=pretrained_spec(params),
    )


def fit(
    data: Dataset,
    params: TrainParams,
    *,
    seed: int = 0,
    communicator: Communicator | None = None,
    folder: Path | None = None,
    root: Path | None = None,
    remote: ObjectPath | None = None,
    content: str = "",
    device: torch.device | str = "cpu",
    callbacks: Sequence[Callback] = (),
) -> TrainingOutcome:
    """Train; every worker of a communicator calls this with the same arguments and gets the same bytes.

    These do not depend on the number of workers, unless ``params.reproducible`` is ``statistical``.

    Parameters
    ----------
    data : rows of all shards; a worker reads its own slots' only.
    params : see ``engine.recipe.trainers``.
    seed : seed of initial weights, batches, draws and dropout.
    communicator : the workers; default: this process alone.
    folder : gets ``models/`` and, until the end, ``checkpoints/``; all workers must see it. A training that
        was interrupted continues from there. Default: everything stays in memory.
    root : a folder above it, beneath which no link is followed; default: ``folder``.
    remote : the prefix of which ``folder`` is this worker's own copy, where hosts share no disk; it gets
        checkpoints and models.
    content : identifies the rows; a checkpoint of other rows or parameters is ignored.
    device : device to compute on.
    callbacks : are told of steps, epochs and phases, on rank 0.

    Raises
    ------
    OperatorError
        Nothing to learn from, a model that cannot be used, or a loss that is not a number.
    """
    threads = 1 if params.reproducible == "exact" else max(1, int(params.resources.cpus))
    with repeatable(torch.device(device), threads):
        workers = communicator or SingleProcess(device)
        most = params.n_slots if params.reproducible == "exact" else workers.size
        slots = Slots(workers, len(data.train), most)
        counts = count_rows(data, slots)
        spec = model_spec(params, data)
        check_model(params, counts.n_rows)
        row_losses = _row_losses(params, data, slots)
        learner = _new_learner(spec, data, params, slots, seed, device, row_losses)
        fingerprint = _fingerprint(params, seed, content, slots)
        there = (remote / CHECKPOINTS, remote / MODELS) if remote is not None else (None, None)
        within = root or folder
        checkpoints = Checkpoints(folder and folder / CHECKPOINTS, slots, fingerprint, within, there[0])
        model_store = ModelStore(folder and folder / MODELS, slots, within, there[1])
        session = Session(
            data=data,
            params=params,
            slots=slots,
            learner=learner,
            counts=counts,
            seed=seed,
            checkpoints=checkpoints,
            model_store=model_store,
            callbacks=callbacks,
        )
        n_models = _train(session, spec, row_losses)
        split, losses, row_ids, weights = _selection(session, n_models)
    states = [] if folder else [model_store.get(index) for index in range(n_models)]
    best = session.progress.notes.get("best_epoch")
    curve = session.progress.notes["curve"]
    return TrainingOutcome(
        spec=spec,
        states=states,
        n_models=n_models,
        selection_losses=losses,
        selection_rows=row_ids,
        selection_weights=weights,
        selection_split=split,
        counts=counts,
        curve=curve,
        best_epoch=best,
        target_scale=row_losses.scale,
    )


def _fingerprint(params: TrainParams, seed: int, content: str, slots: Slots) -> str:
    """Return the digest of all that a checkpoint depends on; of statistical steps also their shares."""
    values = params.model_dump(mode="json", exclude={*params.execution_only, *params.mixture_only})
    shares = [] if params.reproducible == "exact" else [slots.count]
    return digest([CHECKPOINT_FORMAT, values, seed, content, *shares])


def _row_losses(params: TrainParams, data: Dataset, slots: Slots) -> RowLosses:
    """Return the losses of a training's rows by its objective."""
    objective = objective_of(params.objective)
    return (
        number_losses(objective, data.train, slots) if params.task == "regression" else ClassLosses(objective)
    )


def _train(session: Session, spec: ModelSpec, row_losses: RowLosses) -> int:
    """Train by the way that the parameters ask for; returns the number of models."""
    params = session.params
    if params.uses_lbfgs:
        return _solve(session, spec)
    if params.uses_least_squares and row_losses.scale and spec.n_features <= MAX_FEATURES:
        return _solve_least_squares(session, row_losses, row_losses.scale)
    return session.run(method_of(params))


def _new_learner(
    spec: ModelSpec,
    data: Dataset,
    params: TrainParams,
    slots: Slots,
    seed: int,
    device: torch.device | str,
    row_losses: RowLosses,
) -> PhaseLearner:
    if params.is_estimator:
        return EstimatorLearner(params, seed, spec, row_losses)
    model = build(spec, seed)
    if spec.pretrained is not None:
        cast(PretrainedNetwork, model.get_submodule("model")).load_weights(folder_of(params.model))
    model = model.to(device)
    if params.scales_features:
        labelled = spec.model_copy(
            update={"n_classes": data.n_classes}
        )  # a regression's rows have classes too
        census = take_census(labelled, data.train, slots)
        if census.mean is not None and census.std is not None:
            cast(Standardize, model.get_submodule("standardize")).set(census.mean, census.std)
    return Network(model, params, row_losses)


def _solve(session: Session, spec: ModelSpec) -> int:
    """Solve a logistic ERM to its optimum by L-BFGS; returns the number of models, 1."""
    params, shards = session.params, session.weighed_rows()[0]
    trained = train(
        spec,
        shards,
        settings=Settings(l2=params.weight_decay),
        seed=session.seed,
        communicator=session.slots.communicator,
        device=session.learner.device,
    )
    session.learner.restore({f"model.{name}": value for name, value in trained.model.state_dict().items()})
    session.note_epoch({"phase": 0, "epoch": 1, "loss": trained.train_loss})
    session.callbacks.on_phase_end(PhaseEnd(1, 1))
    session.model_store.put(0, model_state(session.learner.state()))
    return 1


def _solve_least_squares(session: Session, row_losses: RowLosses, scale: TargetScale) -> int:
    """Solve a linear ERM of the squared loss to its optimum; returns the number of models, 1."""
    model, shards = session.learner.model, session.weighed_rows()[0]
    scaler = cast(Standardize, model.get_submodule("standardize")) if session.params.scales_features else None
    found = solve(shards, scaler, scale, session.slots, session.params.weight_decay)
    head = cast(nn.Linear, model.get_submodule("head"))
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(found.weight)[None])
        head.bias.fill_(found.bias)
    model.eval()

    def weighted(shard: int) -> Tensor:
        rows = shards[shard]
        return torch.tensor([rows.weight.sum(), -rows.weight @ row_losses.scores(model, rows)])

    weight, loss = session.slots.total_over_shards(weighted).tolist()
    session.note_epoch({"phase": 0, "epoch": 1, "loss": loss / weight})
    session.callbacks.on_phase_end(PhaseEnd(1, 1))
    session.model_store.put(0, model_state(session.learner.state()))
    return 1


def _selection(
    session: Session, n_models: int
) -> tuple[str, np.ndarray[Any, np.dtype[np.uint8]], Int64, Float64]:
    """Compute the 0/1 losses of all base models on the validation rows, or on the train rows without any.

    Returns the split, the losses (m, t), the row ids (m,) and the rows' weights (m,). A regression has no 0/1
    losses, and one model: m is 0.
    """
    if session.params.task == "regression":
        return "validation", np.zeros((0, n_models), np.uint8), np.zeros(0, np.int64), np.zeros(0)
    ids = session.gather(session.of_rows("validation", lambda rows: rows.row_id))
    split = "validation"
    if not sum(map(len, ids)):
        split = "train"
        ids = session.gather(session.of_rows("train", lambda rows: rows.row_id))
    weights = np.ones(sum(map(len, ids)))
    if n_models > 1 and session.params.weights:
        weights = np.concatenate(session.gather(session.of_rows(split, lambda rows: rows.weight)))
        weights = weights if weights.any() else np.ones(len(weights))
    columns = []
    for index in range(n_models):
        session.learner.restore(session.model_store.get(index))
        wrong = session.errors(split)
        columns.append(np.concatenate(session.gather({s: own.astype(np.uint8) for s, own in wrong.items()})))
    return split, np.column_stack(columns), np.concatenate(ids), weights
