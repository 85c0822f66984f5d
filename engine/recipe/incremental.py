"""The recipe's sections ``incremental`` and ``train``."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, field_validator, model_validator

from connectors.foundation.messages import nearest
from engine.core.errors import InputError
from engine.recipe.search import SearchSection
from engine.recipe.section import Section
from operators.registry import BY_ENGINE, operator_names

RULES = ("always", "drift", "never")


class DriftSection(Section):
    """Thresholds of drift above which operators are fitted again. null: the distance is not computed.

    A threshold applies to the distance less its expectation without drift, and counts only if chance does not
    explain the distance: ``false_alarms`` is shared out over ``runs`` and over the distances.
    """

    columns: float | None = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Kolmogorov distance of one column of the features, or total variation of few values "
        "(0 to 1); each column is tested, with a controlled rate of false discoveries",
    )
    features: float | None = Field(default=0.15, ge=0, description="MMD of standardised features (0 to 1.41)")
    gradients: float | None = Field(default=0.15, ge=0, description="MMD of gradients (0 to 1.41)")
    shares: float | None = Field(
        default=0.1, ge=0, le=1, description="Total variation of the groups' shares, noise being one"
    )
    levels: float | None = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Total variation of the shares of a source column's categories, infrequent, new and "
        "missing ones included, by exact counts; of the column where it is largest",
    )
    noise: float | None = Field(default=0.05, ge=0, le=1, description="Rise of the share of rows in no group")
    false_alarms: float = Field(
        default=0.05,
        gt=0,
        lt=1,
        description="Probability of any false alarm in the number of runs that `runs` gives",
    )
    runs: int = Field(
        default=100,
        ge=1,
        validation_alias=AliasChoices("runs", "nights"),
        description="Runs that share `false_alarms` (formerly `nights`)",
    )
    sample: int = Field(
        default=1000,
        ge=20,
        le=5000,
        description="Rows of each side that features and gradients are compared on",
    )

    def level(self, n_figures: int) -> float:
        """Return the p-value up to which one of so many figures counts in one run."""
        one_run = 1 - (1 - self.false_alarms) ** (1 / self.runs)
        return float(one_run / max(n_figures, 1))


class IncrementalSection(Section):
    """The version that a run continues from, and its handling of new rows. By default a run starts afresh."""

    base: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Version to continue from: its name, or `current`; default: none, a full run",
    )
    mode: Literal["predict", "refit", "auto"] = Field(
        default="auto",
        description="How operators treat new rows. predict: apply the state that the base has fitted; "
        "refit: fit again on all rows; auto: predict, unless there is drift",
    )
    keep: tuple[str, ...] = Field(
        default=("encode", "ingest", "embed", "probe", "gradients"),
        description="Operators whose state is kept when the others are fitted again. `parts`, the drawing of "
        "held-out rows, is always kept",
    )
    drift: DriftSection = DriftSection()

    @field_validator("keep")
    @classmethod
    def _known_operators(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        known = (*operator_names(), *BY_ENGINE)
        for name in names:
            if name not in known:
                hint = nearest(name, known) or f" Known operators: {', '.join(known)}."
                raise ValueError(f"there is no operator {name!r}.{hint}")
        return names


class TrainSection(Section):
    """Training on the published version, registration of the model and its promotion to champion."""

    trainer: str = Field(
        default="erm",
        description="erm, erm_plain, erm_class_balanced, resample, gdro, cvar_doro, chi2_dro, dfr, jtt or "
        "boosted_cvar, or a rule of an installed package",
    )
    params: dict[str, Any] = Field(default_factory=dict, description="The trainer's keys")
    when: str = Field(
        default="always",
        description="always; never; drift: if operators were fitted again, a drift exceeds its "
        "threshold, or the champion was trained on a withdrawn version; or a rule of the champion on the "
        'rows of new shards: "worst_group_accuracy < 0.8"',
    )
    search: SearchSection | None = Field(
        default=None, description="Search for some of the trainer's keys before the training; default: none"
    )
    register_as: str | None = Field(
        default=None, description="Name under which MLflow's registry gets the model, as `challenger`"
    )
    promote_if: str | None = Field(
        default=None,
        description="Rule by which it becomes champion, on test rows: comparisons joined by `and`, "
        '"worst_group_accuracy > champion with confidence 0.95 and accuracy > champion - 0.005"',
    )
    reference: Literal["auto", "same", "none"] = Field(
        default="auto",
        description="Class-balanced ERM beside the model, on the same rows. auto: a linear model, up to "
        "2,000,000 train rows; same: the model's kind, which takes as long again; none: it is left out",
    )
    truth: str | None = Field(default=None, description="Column with true groups, used only for scores")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        # Imported here, since a recipe without this section does not need the trainers.
        from engine.recipe.promotion import Condition, PromotionRule, check_model_name
        from engine.recipe.trainers import check_target, parse_params

        try:
            params = parse_params({"trainer": self.trainer, **self.params})
            check_target(params, "train.params")
            if self.search is not None:
                self.search.check_values(params)
            if self.register_as is not None:
                check_model_name(self.register_as, "train.register_as")
            rule = None if self.when in RULES else Condition.parse(self.when, "train.when")
            asked = (
                PromotionRule.parse(self.promote_if, "train.promote_if").conditions if self.promote_if else ()
            )
            for condition in (*asked, *([rule] if rule else [])):
                condition.check_task(params.task == "regression")
        except InputError as error:
            raise ValueError(str(error)) from None
        if rule and rule.relative:
            raise ValueError("train.when: there is no challenger yet to compare with; give a number")
        if rule and ("average_" in rule.metric or rule.metric.startswith("true_")):
            raise ValueError(
                f"train.when: the champion has no {rule.metric}, as it was trained on other rows and is "
                "scored by inferred groups. Name a metric of all rows or of the worst group: "
                '"worst_group_accuracy < 0.8"'
            )
        if (rule or self.promote_if) and not self.register_as:
            raise ValueError("train.register_as: a rule about a champion needs a name to find it by")
        return self
