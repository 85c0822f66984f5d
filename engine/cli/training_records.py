"""Records that ``retrain``, ``predict`` and ``compare`` print with ``--json``."""

from __future__ import annotations

from typing import Any

from engine.cli.json_record import Object, Record


class TrainingRecord(Record):
    """A trained model."""

    folder: str
    """Folder of the model."""
    version: str
    """The version that the model was trained on."""
    reused: bool
    """True where the same training was done before."""
    models: int
    """Number of models of the ensemble."""
    model_weights: list[float]
    """Weights of the models in the ensemble."""
    evaluations: dict[str, Object]
    """Scores by split. `groupings`: the groups, the worst of them, and `left_out`, those of too few rows to
    be in a figure of the worst group; `wrong_labels`: the share of wrong labels of groups that have some, by
    the estimate of `cues`. Above one half a group is in no figure of the worst group either."""
    selection: Object | None
    """Record of the search for parameters."""
    strength: Any
    """Strength of the weights, where it was chosen."""
    importance: Object | None
    """Permutation importance of the columns."""
    reference: Object | None
    """Class-balanced ERM on the same rows: `trainer`, `model`, `folder`, `evaluations`, or the `reason` why
    there is none; null with `--reference none`."""
    run_id: str | None
    """MLflow's run of this training; null without tracking, and for a training that was found again."""
    registered: Object | None
    """The registered model on MLflow: `name`, `version`, `run_id`, `tracking_uri`."""
    promoted: Object | None
    """Verdict of the promotion rule: `promoted`, `reason`."""


class PredictionRecord(Record):
    """Predictions of a dataset."""

    model: str
    """The model as the command named it."""
    version: str
    """The version that the model was trained on."""
    rows: int
    """Number of rows."""
    failed: int
    """Number of rows without a prediction."""
    parts: list[Object]
    """Written files: `path`, `rows`, `failed`, `sha256`, `source`."""
    filled: list[str]
    """Columns that are missing and taken as empty."""
    kept: int
    """Number of files of an earlier call that were kept."""


class ComparedMethod(Record):
    """Scores of one method of group inference."""

    method: str
    """Name of the method."""
    ari: float | None
    """Adjusted Rand index with the true groups."""
    floor: float | None
    """Adjusted Rand index of the classes, taken as groups."""
    minority_recall: float | None
    """Recall of the rows of small groups."""
    outlier_precision: float | None
    """Precision of the outlier mark."""
    outlier_recall: float | None
    """Recall of the outlier mark."""
    sizes: list[int]
    """Number of rows of each group."""
    noise: int
    """Number of rows in no group."""
    seconds: float
    """Duration in seconds."""
