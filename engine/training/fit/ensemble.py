"""A trained model: base models, their mixture weights, and the losses from which other weights follow.

On disk: ``ensemble.json`` (mixture, description of the base models, where they come from),
``models/NNN.safetensors`` and ``selection.safetensors``. Nothing is unpickled on load. A trainer that leaves
one model leaves a mixture of one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from connectors.storage import write_whole
from engine.core.errors import InputError, one_line
from engine.core.json_files import read_json, write_json
from engine.recipe.estimators import is_estimator
from engine.training.fit.checkpoint import MODELS, model_path
from engine.training.fit.estimators import KEY, module_of
from engine.training.objectives import TargetScale
from operators.arrays import Float64
from operators.base import OperatorError
from operators.lpboost import solve_model_weights
from operators.models import ModelSpec, build, count_weights
from operators.probe.scoring import logits

DESCRIPTION = "ensemble.json"
SELECTION = "selection.safetensors"


@dataclass(frozen=True)
class Ensemble:
    """T models and a distribution over them; of a regression one. ``Ensemble.load(folder)`` reads one."""

    spec: ModelSpec
    models: tuple[nn.Module, ...]
    """T modules on the CPU, in eval mode."""
    model_weights: Float64
    """lambda (T,) >= 0, sum 1."""
    selection_losses: npt.NDArray[np.uint8]
    """(m, T) 0/1 losses on the selection set."""
    selection_rows: npt.NDArray[np.int64]
    """(m,) their row ids."""
    selection_weights: Float64
    """(m,) how often each counts when the mixture is chosen."""
    about: dict[str, Any]
    """Trainer, parameters, classes and dataset version, as the training recorded them."""
    target: TargetScale | None = None
    """The map from the outputs of a regression's models to predictions; None for a classification."""

    @classmethod
    def load(cls, folder: str | Path) -> Ensemble:
        """Read a model that :meth:`save` wrote. Raises InputError if a file is missing or damaged."""
        folder = Path(folder)
        try:
            record = read_json(folder / DESCRIPTION)
            spec = ModelSpec.model_validate(record["model"])
            weights = _distribution(record["model_weights"])
            selection = safetensors.numpy.load_file(folder / SELECTION)
            states = [
                safetensors.torch.load_file(model_path(folder / MODELS, i)) for i in range(len(weights))
            ]
            models = tuple(build_from(spec, state) for state in states)
            losses = selection["losses"]
            counts = selection.get("weight", np.ones(len(losses)))  # folders of earlier versions have none
            target = TargetScale.read(record["target"]) if "target" in record else None
            return cls(spec, models, weights, losses, selection["row_id"], counts, record["about"], target)
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            RuntimeError,  # torch's, and JSON that is nested too deep
            SafetensorError,
            OperatorError,
        ) as error:
            text = one_line(error, 500)
            raise InputError(
                f"{folder} does not hold a trained model: {type(error).__name__}: {text}. Train again."
            ) from None

    def save(self, folder: str | Path, *, root: Path | None = None) -> None:
        """Write it; base models that are there already are kept, as they never change.

        No link is followed beneath ``root``, a folder above; default: ``folder``.
        """
        folder = Path(folder)
        root = root or folder
        for index, model in enumerate(self.models):
            path = model_path(folder / MODELS, index)
            if not path.exists():
                state = {f"model.{k}": v.contiguous().clone() for k, v in model.state_dict().items()}
                write_whole(path, safetensors.torch.save(state), root=root)
        arrays = {
            "losses": self.selection_losses,
            "row_id": self.selection_rows,
            "weight": self.selection_weights,
        }
        content = safetensors.numpy.save({name: np.ascontiguousarray(one) for name, one in arrays.items()})
        write_whole(folder / SELECTION, content, root=root)
        record = {"model": self.spec.model_dump(mode="json"), "model_weights": self.model_weights.tolist()}
        if self.target is not None:
            record["target"] = asdict(self.target)
        write_json(folder / DESCRIPTION, record | {"about": self.about}, root=root)

    def reweight(self, alpha: float) -> Ensemble:
        """Return the same base models with mixture weights for the tail ``alpha``; nothing is trained.

        lambda has the least CVaR of the expected 0/1 loss on the selection set, in which rows count by
        ``selection_weights`` (Zhai et al. 2021, equation 6, with caps w_i / (alpha sum w)).
        Raises ValueError for alpha outside (0, 1], and for a regression.
        """
        self._check_classes()
        found = solve_model_weights(self.selection_losses, alpha, self.selection_weights)
        return replace(self, model_weights=found, about=self.about | {"alpha": alpha, "mixing": "cvar"})

    def average(self) -> Ensemble:
        """Return the same base models with equal weights (AdaBoost + average)."""
        t = len(self.models)
        about = {key: value for key, value in self.about.items() if key != "alpha"} | {"mixing": "average"}
        return replace(self, model_weights=np.full(t, 1 / t), about=about)

    def predict_proba(self, X: npt.ArrayLike) -> Float64:
        """Return the mean of the base models' class probabilities by lambda: (n, C) for rows X (n, d).

        Raises ValueError for a regression.
        """
        self._check_classes()
        X = self._rows(X)
        found = np.zeros((len(X), self.spec.n_classes))
        for weight, model in self._mixed():
            found += weight * _softmax(logits(model, X)) if len(X) else 0.0
        return found

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the class index of largest :meth:`predict_proba`: (n,). No answer is random."""
        found: npt.NDArray[np.int64] = self.predict_proba(X).argmax(axis=1)
        return found

    def predict_numbers(self, X: npt.ArrayLike) -> Float64:
        """Return the predictions (n,) of a regression in the target's unit.

        Raises ValueError for a classification.
        """
        if self.target is None:
            raise ValueError("this model predicts classes: call predict or predict_proba")
        X = self._rows(X)
        found = np.zeros(len(X))
        for weight, model in self._mixed():
            found += weight * logits(model, X)[:, 0].astype(np.float64) if len(X) else 0.0
        return self.target.predictions(found)

    def sample(
        self, X: npt.ArrayLike, request_ids: Iterable[str | float], *, seed: int = 0
    ) -> npt.NDArray[np.int64]:
        """Return the class index by one base model for each row, drawn by lambda: (n,).

        This is the randomised classifier whose CVaR lambda minimises. The draw depends on ``seed`` and the
        row's request id alone, so asking again gives the same answer: a user who may repeat a request until
        it is granted games a model that draws anew (the caveat in the paper's conclusion). Give the id of
        what is decided, such as the applicant's, and keep the seed secret. The number 17 and the text "17"
        are the same id. Raises ValueError for a regression, and for an id that is null.
        """
        self._check_classes()
        X = self._rows(X)
        chosen = self.chosen(request_ids, seed=seed)
        if len(chosen) != len(X):
            raise ValueError(f"{len(X)} rows, but {len(chosen)} request ids; give one for each row")
        found = np.empty(len(X), np.int64)
        for index in np.unique(chosen):
            mine = chosen == index
            found[mine] = logits(self.models[index], X[mine]).argmax(axis=1)
        return found

    def chosen(self, request_ids: Iterable[str | float], *, seed: int = 0) -> npt.NDArray[np.int64]:
        """Return the index of the base model that answers each request: (n,)."""
        edges = np.cumsum(self.model_weights)
        points = np.array([_point(seed, request_text(request)) for request in request_ids], np.float64)
        places = np.searchsorted(edges, points * edges[-1], side="right")
        found: npt.NDArray[np.int64] = places.clip(max=int(np.flatnonzero(self.model_weights)[-1]))
        return found

    def losses(self, X: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Return the 0/1 losses of every base model: (n, T). Raises ValueError for a regression."""
        self._check_classes()
        X, y = self._rows(X), np.asarray(y)
        columns = [logits(model, X).argmax(axis=1) != y for model in self.models] if len(X) else []
        return (
            np.column_stack(columns).astype(np.uint8)
            if columns
            else np.empty((0, len(self.models)), np.uint8)
        )

    def _check_classes(self) -> None:
        if self.target is not None:
            raise ValueError("this model predicts numbers: call predict_numbers")

    def _mixed(self) -> Iterable[tuple[float, nn.Module]]:
        return [(w, model) for w, model in zip(self.model_weights, self.models, strict=True) if w > 0]

    def _rows(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        rows = np.asarray(X, np.float32)
        if rows.ndim == 2 and not len(rows):
            return np.empty((0, self.spec.n_features), np.float32)
        if rows.ndim != 2 or rows.shape[1] != self.spec.n_features:
            raise ValueError(f"X has shape {rows.shape}; the model takes (n, {self.spec.n_features})")
        return rows


def _distribution(found: Any) -> Float64:
    """Return mixture weights (T,). Raises ValueError if they are not a distribution over models."""
    weights = np.asarray(found, np.float64)
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError(
            "model_weights is not a list of shares of which none is negative and one is positive"
        )
    return weights


def build_from(spec: ModelSpec, state: dict[str, Tensor]) -> nn.Module:
    """Build a base model from its description and its tensors, in eval mode.

    Raises ValueError, before anything is built, for tensors that are fewer numbers than are described.
    """
    if is_estimator(spec.model):
        return module_of(state[f"model.{KEY}"], spec)
    held = sum(value.numel() for value in state.values())
    if (described := count_weights(spec)) > held:
        raise ValueError(f"{described} weights are described, and the file holds {held}")
    model = build(spec, seed=0)
    model.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})
    return model.eval()


def _softmax(scores: npt.NDArray[np.float32]) -> Float64:
    return torch.softmax(torch.from_numpy(scores).double(), dim=1).numpy()


def request_text(request: Any) -> str:
    """Return a request id as text, a whole number without decimal point. Raises ValueError for null."""
    if request is None or (isinstance(request, float | np.floating) and math.isnan(request)):
        raise ValueError("a request id is null; give each row the id of what is decided")
    if isinstance(request, float | np.floating) and request.is_integer():
        return str(int(request))
    return str(request)


def _point(seed: int, request: str) -> float:
    """Return a number in [0, 1) that cannot be guessed without the seed."""
    key = hashlib.sha256(str(seed).encode()).digest()
    text = f"str:{request}".encode()
    return int.from_bytes(hashlib.blake2b(text, key=key, digest_size=7).digest(), "big") / 2**56
