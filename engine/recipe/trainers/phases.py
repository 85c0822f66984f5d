"""Trainers that train more than once: ``dfr``, ``jtt`` and ``boosted_cvar``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.recipe.trainers.base import Mixture, TrainParams


class DfrParams(TrainParams):
    """Deep feature reweighting (Kirichenko et al. 2023): ERM, whose last layer is then fitted again.

    The last layer is a logistic regression on train rows that the first model has not seen, in which every
    group has the same weight.
    """

    refuses_regression: ClassVar[str | None] = "fits the last layer again as a logistic regression"
    refuses_estimators: ClassVar[str | None] = "fits the last layer of a network again, and {model} has none"
    accepts_factories: ClassVar[str] = "if it ends in a Linear"

    trainer: Literal["dfr"] = "dfr"
    sampling: Literal["shuffle"] = "shuffle"
    """Every epoch of the first model takes each of its rows once."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Share of the train rows that the last layer is fitted to, and the first model does not see."""
    last_l2: float = Field(default=0.01, ge=0)
    """Penalty l2/2 ||W||^2 on the last layer's weights."""
    keep: Literal["last"] = "last"
    """The first model is that of its last epoch."""


class JttParams(TrainParams):
    """Just train twice (Liu et al. 2021)."""

    refuses_regression: ClassVar[str | None] = "repeats rows that a first model classifies wrongly"
    trainer: Literal["jtt"] = "jtt"
    sampling: Literal["shuffle"] = "shuffle"
    """Every epoch takes each row once, rows of the error set ``upweight`` times."""
    first_epochs: int = Field(default=5, ge=1)
    """Epochs of the first model, whose errors on the train rows are found."""
    upweight: int = Field(default=10, ge=1)
    """Number of times that the second training uses a row of the error set in an epoch."""

    @property
    def total_epochs(self) -> int:
        """Number of epochs of both trainings."""
        return super().total_epochs + (0 if self.is_estimator else self.first_epochs)


class BoostedParams(TrainParams):
    """Boosted CVaR classification (Zhai et al. 2021, NeurIPS): a mixture of models."""

    refuses_regression: ClassVar[str | None] = "draws rows by how many models classify them wrongly"
    trainer: Literal["boosted_cvar"] = "boosted_cvar"
    sampling: Literal["shuffle"] = "shuffle"
    """Sampling of the first model. The others draw rows by their sample weights. Published weights enter
    these: as factors with ``ada``, as caps w_i / (alpha sum w) in the LPs and in the mixture's."""
    rounds: int = Field(default=30, ge=1)
    """Base models T. The first is the ERM model, trained for ``epochs``; each other starts from it."""
    round_epochs: int = Field(default=2, ge=1)
    """Epochs of every model after the first, over rows drawn with replacement by their sample weights."""
    boosting: Literal["ada", "lp", "regularized_lp"] = "ada"
    """Sample weights of the next model: alpha-AdaLPBoost, alpha-LPBoost, or that with an entropy term."""
    alpha: float = Field(default=0.1, gt=0, le=1)
    """Size of the tail whose loss the mixture minimises; ``reweight`` chooses another one later."""
    eta: float = Field(default=1.0, gt=0)
    """Step size of ``ada``."""
    beta: float = Field(default=100.0, gt=0)
    """Strength of ``regularized_lp``'s entropy term H(w)/beta."""
    mixing: Literal["cvar", "average"] = "cvar"
    """Model weights: of least CVaR on the validation rows, or all equal (AdaBoost + average)."""
    trim: float = Field(default=0.0, ge=0, lt=1)
    """Share of train rows, those that most models get wrong, that get no weight (as in DORO)."""
    keep: Literal["last"] = "last"
    """Every model is that of its last epoch."""

    @property
    def total_epochs(self) -> int:
        """Number of epochs of all models; an estimator is fitted once in each round."""
        later = 1 if self.is_estimator else self.round_epochs
        return super().total_epochs + (self.rounds - 1) * later

    @property
    def mixture_only(self) -> frozenset[str]:
        """Parameters of the mixture only; which ones these are depends on ``boosting``."""
        unused = {"ada": {"alpha", "beta"}, "lp": {"eta", "beta"}, "regularized_lp": {"eta"}}
        return frozenset({"mixing", *unused[self.boosting]})

    @property
    def mixture(self) -> Mixture:
        """The rule by which base models are mixed."""
        return Mixture(self.mixing, self.alpha)
