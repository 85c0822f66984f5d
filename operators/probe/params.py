"""Parameters of the ``probe`` operator."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from operators.base import OperatorParams, Resources, ShardReader
from operators.models.spec import ModelName, Widths

SMALL_ROWS = {True: 2_000_000, False: 200_000}
"""Default of ``small_rows``, by whether the model is solved to a tolerance."""


class ProbeParams(OperatorParams):
    """Parameters of ``probe``: the classifier, its regularisation, and where it is trained."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"trainer", "workers", "small_rows", "resources"})
    solves_logistic: ClassVar[bool] = True
    """Whether a logistic model is solved to a tolerance, in a few passes, rather than trained by Adam."""

    model: ModelName = "logistic"
    """``logistic``, ``mlp`` or ``package.module:factory``, called as ``factory(n_features, n_classes)``."""
    hidden: Widths = (50, 50)
    """Widths of the ReLU layers of ``mlp``."""
    l2: float = Field(default=0.5, ge=0)
    """Adds l2/2 ||W||^2 to the mean loss (biases are free). With n rows that is scikit-learn's 1/(C n), for
    two classes 2/(C n): it has one weight vector there, softmax has two.
    Strong on purpose: group inference needs a probe that leans on the spurious cue, so that the rows that
    break it are wrong together and their gradients point one way. Chosen on digits with a spurious
    background, standardised, with the truth in view (so digits scores are not held out): at 0.5 the
    minority stays near 0 % accuracy and clusters; at 0.05 it is a third learnt and scatters. Without
    ``standardize`` features are smaller and the same l2 is stronger. On other data, raise it until
    ``train_accuracy`` starts to fall."""
    standardize: bool = True
    """Centre every feature and divide by its standard deviation first; the entries of one source column share
    theirs, so that a pixel that is nearly always dark is not blown up to the size of the others."""
    epochs: int = Field(default=50, ge=1)
    """Passes of Adam over the rows; ``logistic`` is solved to a tolerance instead."""
    lr: float = Field(default=1e-3, gt=0)
    """Adam's step size."""
    batch_size: int = Field(default=128, ge=1)
    """Rows of a step of Adam, over all workers."""
    trainer: Literal["auto", "in_process", "ray"] = "auto"
    """One task (``in_process``), or Ray Train's workers (``ray``; seconds to start, more memory and speed).
    ``auto``: one task up to ``small_rows`` rows, or where there is no Ray. Same bytes either way."""
    small_rows: int | None = Field(default=None, ge=0)
    """Largest number of rows that ``auto`` trains in one task. Default: 2,000,000 where a logistic model is
    solved (a million rows of 32 features: 15 s in one task, 100 s on workers that had to start), else
    200,000."""
    workers: int | None = Field(default=None, ge=1)
    """Workers of ``ray``; default: as many as fit into the cluster; at most 8, and one per shard."""
    resources: Resources = Resources()
    """Resources of one worker; ``gpus: 1`` trains and predicts on a GPU."""

    def wants_ray(self, shards: ShardReader) -> bool:
        """Return whether the training runs on Ray Train's workers, given that the run has Ray."""
        is_solved = self.solves_logistic and self.model == "logistic"
        small = SMALL_ROWS[is_solved] if self.small_rows is None else self.small_rows
        many = sum(shard.n_rows for shard in shards.shards) > small
        return self.trainer == "ray" or (self.trainer == "auto" and many)
