"""Parameters that all trainers have, and the rules that hold for each of them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from engine.recipe.estimators import (
    ESTIMATORS,
    OBJECTIVES_OF,
    check_estimator,
    check_regressor,
    is_estimator,
    known_estimators,
)
from engine.recipe.objectives import CROSS_ENTROPY, Task, parse_objective
from engine.recipe.pretrained import check_pretrained, check_pretrained_name, is_pretrained
from operators.base import OperatorParams, Resources
from operators.models.spec import Widths, check_model_name

ROWS_PER_SLOT = 64
"""Rows of a step for each slot. A worker with fewer rows mostly waits for the others."""
MAX_SLOTS = 8
MIN_BATCH, MAX_BATCH, STEPS_PER_EPOCH = 128, 8192, 256
EPOCHS = 50


GRADIENT_KEYS = frozenset(
    {
        "hidden",
        "optimizer",
        "lr",
        "momentum",
        "schedule",
        "warmup",
        "clip",
        "amp",
        "patience",
        "weight_decay",
        "epochs",
        "batch_size",
        "slots",
        "reproducible",
        "checkpoint_every",
        "max_failures",
        "first_epochs",
        "round_epochs",
    }
)
"""Keys that only models trained by gradients read."""


LINEAR = "linear"
"""Name of the linear model of numbers; that of classes is ``logistic``."""


class RefusedModelError(ValueError):
    """The trainer cannot train this model."""


def check_trained_model(name: str) -> str:
    """Return the name of a model that can be trained; raise ValueError for any other."""
    if is_pretrained(name):
        return check_pretrained_name(name)
    if not is_estimator(name):
        return name if name == LINEAR else check_model_name(name)
    if name not in known_estimators(name):
        check_estimator(name, {})
    return name


def check_objective(text: str) -> str:
    """Return the text of an objective; raise ValueError for any other."""
    parse_objective(text)
    return text


TrainedModel = Annotated[str, AfterValidator(check_trained_model)]
ObjectiveText = Annotated[str, AfterValidator(check_objective)]


class Mixture(NamedTuple):
    """The rule by which the base models of a training are mixed."""

    kind: Literal["cvar", "average"]
    """Model weights of least CVaR on the validation rows, or all equal."""
    alpha: float
    """Tail of the CVaR."""


class TrainParams(OperatorParams):
    """Parameters that all trainers have; the function ``parse_params`` chooses the class of a trainer."""

    execution_only: ClassVar[frozenset[str]] = frozenset(
        {"where", "workers", "small_rows", "checkpoint_every", "max_failures", "resources", "max_rows"}
    )
    refuses_estimators: ClassVar[str | None] = None
    """The reason why the trainer cannot train the estimators of a library; None if it can."""
    accepts_factories: ClassVar[str] = "yes"
    """The networks of ``package.module:factory`` that the trainer accepts, as the table of models says it."""
    refuses_regression: ClassVar[str | None] = None
    """The reason why the trainer cannot train a model of numbers; None if it can."""

    @property
    def mixture_only(self) -> frozenset[str]:
        """Parameters of the mixture only. Changing one of them requires no training of base models."""
        return frozenset()

    @property
    def mixture(self) -> Mixture | None:
        """The rule by which base models are mixed; None for a trainer that leaves one model."""
        return None

    @property
    def balances_classes(self) -> bool:
        """Return whether rows have the weight of their class, in place of published weights."""
        return False

    objective: ObjectiveText = CROSS_ENTROPY
    """Loss of a row, and what the model answers: ``cross_entropy``, a class; ``squared``, the mean of the
    number in ``target``; ``pinball:q``, its quantile q; or the name of an installed objective."""
    target: str | None = None
    """Numeric column of the version that a regression predicts. It must be no feature: name it in
    ``source.exclude``. Groups, weights and splits stay those of the version, whose label may be a binned
    target."""
    model: TrainedModel = "logistic"
    """``logistic`` (``linear`` for a regression), ``mlp``, ``package.module:factory``, called as
    ``factory(n_features, n_outputs)`` with an output for each class or one, ``hf:FOLDER``, a pretrained
    network of texts or images whose last layers are trained (the extra ``embed``), or an estimator:
    ``sklearn:HistGradientBoostingClassifier``, ``sklearn:RandomForestClassifier``,
    ``sklearn:ExtraTreesClassifier``, ``sklearn:LogisticRegression``, ``xgboost:XGBClassifier``,
    ``lightgbm:LGBMClassifier``, or for a regression ``sklearn:HistGradientBoostingRegressor``,
    ``sklearn:RandomForestRegressor``, ``sklearn:ExtraTreesRegressor``, ``xgboost:XGBRegressor``,
    ``lightgbm:LGBMRegressor``. XGBoost's and LightGBM's need the extras ``xgboost`` and ``lightgbm``."""
    model_params: dict[str, Any] = Field(default_factory=dict)
    """Parameters of an estimator by name, such as ``{max_iter: 200, learning_rate: .05}``; of ``hf:`` the
    ``column`` with texts or images, the number of ``layers`` that are trained (1, or ``all``), ``max_tokens``
    (128) and ``image_size``."""
    max_rows: int = Field(default=2_000_000, ge=1)
    """Maximum number of train rows of an estimator: one worker holds all of them, at about 16 bytes a row and
    feature."""
    hidden: Widths = (50, 50)
    """Widths of the ReLU layers of ``mlp``."""
    standardize: bool = True
    """Centre and scale every feature first, by the train rows; the entries of one vector column share a
    deviation, as in ``probe``, so that rare entries are not blown up."""
    optimizer: Literal["auto", "lbfgs", "sgd", "adam", "adamw"] = "auto"
    """Stochastic gradient descent with momentum, Adam (Kingma & Ba 2015), AdamW, which takes the weight decay
    out of the gradient (Loshchilov & Hutter 2019), or L-BFGS, which solves a ``logistic`` ERM to its optimum.
    ``auto``: ``lbfgs`` for a ``logistic`` trained by erm, erm_plain or erm_class_balanced with ``sampling``,
    ``keep``, ``schedule``, ``warmup`` and ``clip`` at their defaults; the normal equations for a ``linear``
    of ``squared`` under the same conditions, up to 2,048 features; else ``sgd``."""
    lr: float = Field(default=0.01, gt=0)
    """Step size of the optimiser."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Step size over the epochs of a phase: the same, or from ``lr`` down along half a cosine or a line."""
    warmup: float = Field(default=0.0, ge=0, lt=1)
    """Share of a phase's epochs in which the step size first grows in equal steps up to ``lr``."""
    clip: float | None = Field(default=None, gt=0)
    """Largest Euclidean norm of a step's gradient; longer ones are shortened to it. Default: any."""
    amp: bool = False
    """Multiply matrices of a step's forward and backward pass in bfloat16 (torch.autocast); weights, losses
    and steps stay float32. For GPUs, and CPUs that compute bfloat16 faster; a logit has about three digits
    then."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum of ``sgd``."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """Added to the gradient as weight_decay * W; biases are not penalised."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the train rows. Default: 50; beyond 2,097,152 train rows, where ``batch_size`` has its
    default too, as many as keep a phase at 12,800 steps."""
    batch_size: int | None = Field(default=None, ge=1)
    """Rows of a step, over all workers. Default: 128, and beyond 32,768 train rows as many more as keep an
    epoch at 256 steps, up to 8,192 rows."""
    sampling: Literal["shuffle", "group_balanced", "weight"] = "shuffle"
    """An epoch's rows: each once; or as many drawn with replacement, each group as often (by weight
    inside a group), or each row as often as its weight says."""
    weights: bool = True
    """Use the column ``weight``; else every row counts the same."""
    noise: Literal["own_group", "erm", "drop"] = "erm"
    """Rows in no group (-1): one group for each class; in the loss but in no group; not trained on. A few
    rows, half of them corrupt, make a bad group: on Synthetic with 5 % flipped labels ``own_group`` cost .29
    in worst-group accuracy against ``erm``."""
    keep: Literal["last", "best"] = "last"
    """The last epoch's model, or that of the epoch with the best worst inferred group on validation."""
    patience: int | None = Field(default=None, ge=1)
    """Early stopping: end a phase after so many epochs without a better score on validation rows. Needs
    ``keep: best``. Default: all epochs."""
    slots: int | None = Field(default=None, ge=1, le=MAX_SLOTS)
    """A step is summed over this many fixed shares, and as many workers can take part; another number gives
    other batches. Default: one for each 64 rows of ``batch_size``, at most 8; never more than shards."""
    reproducible: Literal["exact", "statistical"] = "exact"
    """``exact``: the same bytes for any number of workers. ``statistical``: a step has one share for each
    worker, so that the rows of a step, and the bytes, depend on their number. That halves the time of gdro on
    130,000 x 38 rows in eight shards; a table of one shard, and models that take no steps, gain nothing."""
    where: Literal["auto", "in_process", "ray"] = "auto"
    """This process, or Ray Train's workers (seconds to start). ``auto``: this process up to
    ``small_rows`` rows, or where there is no Ray. Same bytes either way."""
    workers: int | None = Field(default=None, ge=1)
    """Workers of ``ray``; default: as many as fit into the cluster; at most one for each slot."""
    small_rows: int = Field(default=200_000, ge=0)
    """Largest number of rows that ``where: auto`` trains in this process."""
    checkpoint_every: int = Field(default=10, ge=1)
    """Epochs between checkpoints, counted through all rounds of boosting. An estimator has one after each
    fit."""
    max_failures: int = Field(default=3, ge=0)
    """Number of times that Ray Train restarts from the last checkpoint after losing a worker."""
    resources: Resources = Resources()
    """Resources of one worker; ``gpus: 1`` trains on a GPU. A training that is ``exact`` uses one thread of
    ``cpus``, as the last bits depend on their number; ``statistical`` uses all."""

    @property
    def n_slots(self) -> int:
        """Number of shares of a step, before the number of shards is known."""
        return self.slots or min(MAX_SLOTS, max(1, self.step_rows // ROWS_PER_SLOT))

    @property
    def step_rows(self) -> int:
        """Number of rows of a step; see :meth:`for_rows` for the default on many rows."""
        return self.batch_size or MIN_BATCH

    def for_rows(self, n_rows: int) -> Self:
        """Return these parameters with the defaults of some keys for ``n_rows`` train rows."""
        if self.batch_size is not None:
            return self
        wanted = min(MAX_BATCH, max(MIN_BATCH, n_rows // STEPS_PER_EPOCH))
        batch = 1 << (wanted - 1).bit_length()
        few = max(1, EPOCHS * STEPS_PER_EPOCH * batch // max(n_rows, 1))
        return self.model_copy(update={"batch_size": batch, "epochs": self.epochs or min(EPOCHS, few)})

    @property
    def n_epochs(self) -> int:
        """Number of passes over the train rows; see :meth:`for_rows` for the default on many rows."""
        return self.epochs or EPOCHS

    @property
    def total_epochs(self) -> int:
        """Number of epochs of a whole training that does not stop early; 1 of a model without epochs."""
        solved = self.uses_lbfgs or self.uses_least_squares or self.is_estimator
        return 1 if solved else self.n_epochs

    @property
    def task(self) -> Task:
        """Return ``classification`` or ``regression``, as the objective decides."""
        return parse_objective(self.objective).task

    @property
    def uses_lbfgs(self) -> bool:
        """Return whether the model is solved to its optimum by L-BFGS instead of being trained by steps."""
        return False

    @property
    def uses_least_squares(self) -> bool:
        """Return whether the model is solved to its optimum by least squares."""
        return False

    @property
    def is_estimator(self) -> bool:
        """Return whether the model is an estimator that is fitted to weighted rows, not by gradients."""
        return is_estimator(self.model)

    @property
    def is_pretrained(self) -> bool:
        """Return whether the model is a pretrained network, which reads texts or images, not features."""
        return is_pretrained(self.model)

    @property
    def scales_features(self) -> bool:
        """Return whether features are centred and scaled; token ids and pixels are not."""
        return self.standardize and not self.is_pretrained

    @model_validator(mode="before")
    @classmethod
    def _default_model_of_numbers(cls, values: Any) -> Any:
        """Return the values with ``model: linear`` where a regression names no model."""
        try:
            answers_numbers = parse_objective(values["objective"]).task == "regression"
        except (TypeError, KeyError, AttributeError, ValueError):  # is said, where it is wrong, by the field
            return values
        return {**values, "model": values.get("model", LINEAR)} if answers_numbers else values

    @model_validator(mode="after")
    def _task_fits(self) -> Self:
        if self.task == "classification":
            if self.model == LINEAR:
                raise ValueError("model linear answers by a number; for classes it is logistic")
            if self.target is not None:
                raise ValueError(
                    f"target is read by a regression; set objective to squared or pinball:0.9 "
                    f"(objective is {self.objective})"
                )
            if self.model in OBJECTIVES_OF:
                raise ValueError(
                    f"model {self.model} predicts numbers: set objective to squared and target to a numeric "
                    f"column, or name the classifier, {self.model.replace('Regressor', 'Classifier')}"
                )
            return self
        if self.refuses_regression:
            raise ValueError(
                f"objective {self.objective}: trainer {trainer_of(self)} {self.refuses_regression}. A "
                f"regression is trained by erm, erm_plain, resample, gdro, cvar_doro or chi2_dro"
            )
        if self.is_estimator or self.model == "logistic":
            check_regressor(self.model, self.objective)
        return self

    @model_validator(mode="after")
    def _model_can_be_trained(self) -> Self:
        if self.is_pretrained:
            check_pretrained(self.model, self.model_params)
            if unread := sorted({"hidden", "standardize"} & self.model_fields_set):
                raise ValueError(
                    f"{unread[0]} is not read by {self.model}, which has layers and inputs of its own"
                )
            return self
        if not self.is_estimator:
            if self.model_params:
                raise ValueError(
                    f"model_params is read by estimators ({', '.join(ESTIMATORS)}) and by hf:; model is "
                    f"{self.model!r}"
                )
            return self
        if self.refuses_estimators:
            raise RefusedModelError(
                f"trainer {trainer_of(self)} {self.refuses_estimators.format(model=self.model)}. Train it by "
                f"erm, resample, jtt or boosted_cvar, or set model to logistic or mlp."
            )
        check_estimator(self.model, self.model_params)
        if unread := sorted(GRADIENT_KEYS & self.model_fields_set):
            raise ValueError(
                f"{unread[0]} is read by models that are trained by gradients; {self.model} has parameters "
                f"of its own, under model_params"
            )
        if self.where == "ray":
            raise ValueError(f"where: {self.model} is fitted in one worker. Set where to auto")
        if self.keep == "best":
            raise ValueError(f"keep: {self.model} has no epochs to choose from. Set keep to last")
        return self

    @model_validator(mode="after")
    def _shares_are_fixed_or_not(self) -> Self:
        if self.reproducible == "statistical" and self.slots is not None:
            raise ValueError("slots fixes the shares of a step; reproducible is statistical. Remove one")
        return self

    @model_validator(mode="after")
    def _stops_by_a_score(self) -> Self:
        if self.patience is not None and self.keep != "best":
            raise ValueError("patience stops when no epoch scores better: set keep to best too")
        return self

    @model_validator(mode="after")
    def _takes_steps_for_amp(self) -> Self:
        if self.amp and (self.uses_lbfgs or self.uses_least_squares):
            raise ValueError(
                f"amp is read by models that take steps, and {self.model} is solved to its optimum here. Set "
                f"optimizer to sgd, or remove amp"
            )
        return self

    @model_validator(mode="after")
    def _lbfgs_can_be_used(self) -> Self:
        if self.optimizer == "lbfgs" and not self.uses_lbfgs:
            raise ValueError(
                "optimizer lbfgs solves model logistic for the trainers erm, erm_plain and "
                "erm_class_balanced, with objective cross_entropy, sampling shuffle and keep last, without "
                "schedule, warmup and clip. Set optimizer to auto."
            )
        return self


def trainer_of(params: TrainParams) -> str:
    """Return the name of the trainer to which the parameters belong."""
    return str(getattr(params, "trainer"))  # noqa: B009  (the base class has none)
