"""The user's rule by which a challenger becomes champion: comparisons of metrics, joined by `and`.

The name under which both are registered is checked here too.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from connectors.foundation.messages import nearest
from engine.core.errors import InputError

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
PATTERN = re.compile(
    rf"\s*(?P<metric>[\w.]+)\s*(?P<sign>>=|<=|>|<)\s*"
    rf"(?:(?P<champion>champion)\s*(?P<offset>[+-]\s*{NUMBER})?|(?P<number>{NUMBER}))\s*"
    rf"(?:with\s+confidence\s+(?P<confidence>{NUMBER})\s*)?"
)
OF_NUMBERS = ("loss", "rmse", "mae", "r2", "coverage", "loss_high")
"""Ends of the names of a regression's metrics; ``log_loss`` is one of a classification."""
CVAR = r"(?:log_loss_)?cvar_\d*\.?\d+"
LOSS = re.compile(rf".*(?:loss|rmse|mae|ece)(?:_high)?|{CVAR}")
"""Metrics that are better the smaller they are; none is below 0."""
GAIN = re.compile(r".*(?:accuracy|auprc|r2)(?:_low)?")
"""Metrics that are better the larger they are; none is above 1."""
METRICS = (
    "accuracy",
    "worst_group_accuracy",
    "worst_group_accuracy_low",
    "average_accuracy",
    "balanced_accuracy",
    "log_loss",
    "auprc",
    "ece",
    "cvar_0.1",
    "log_loss_cvar_0.1",
    "loss",
    "worst_group_loss",
    "worst_group_loss_high",
    "average_loss",
    "rmse",
    "mae",
    "r2",
    "coverage",
)
"""Metrics of classifications and regressions; those of groups may have the name of a grouping in front, and
those of CVaR have any share behind."""
KNOWN_METRIC = re.compile(
    rf"accuracy|balanced_accuracy|(?:log_)?loss|auprc|ece|rmse|mae|r2|coverage|{CVAR}"
    r"|(?:\w+_)?(?:worst_group_(?:accuracy(?:_low)?|loss(?:_high)?)|average_(?:accuracy|loss))"
)
SHARE = re.compile(r"accuracy(?:_low)?$|auprc$|^ece$|^coverage$|^cvar_")
"""Metrics with values from 0 to 1."""
AND = re.compile(r"\s+and\s+")
ACCURACY, WORST = "accuracy", "worst_group_accuracy"
MAX_UNASKED_LOSS = 0.02
"""Accuracy that a promotion may cost under a rule without a bound on it before it is worth a warning."""
EXAMPLE = "worst_group_accuracy > champion with confidence 0.95 and accuracy > champion - 0.005"


class CannotCompareError(Exception):
    """The champion cannot answer for the rows of a version. The message says why."""


@dataclass(frozen=True)
class TestResult:
    """Outcome of a comparison that asks for a confidence."""

    holds: bool
    text: str
    """The test, its number of rows, and the result."""


class PairedTest(Protocol):
    """Answers whether the challenger's metric exceeds the champion's by more than ``bound``."""

    def __call__(self, metric: str, bound: float, confidence: float) -> TestResult:
        """Test on rows that both have answered."""
        ...


@dataclass(frozen=True)
class Condition:
    """A comparison such as ``METRIC > champion + 0.01``, ``METRIC > champion with confidence .95``."""

    text: str
    metric: str
    sign: str
    relative: bool
    """Whether the bound is the champion's value plus ``bound``."""
    bound: float
    key: str = "--promote-if"
    """Option or key that holds the condition, for error messages."""
    confidence: float | None = None
    """Confidence with which it must hold; None: the figures are compared as they are."""

    @classmethod
    def parse(cls, text: str, key: str = "--promote-if") -> Condition:
        """Parse a comparison. Raises InputError, naming the key, for any other text."""
        match = PATTERN.fullmatch(text)
        if match is None:
            raise InputError(
                f"{key} {text!r}: write METRIC, one of > >= < <=, then a number or `champion`, plus "
                f"or minus a number if you like, and `with confidence 0.95` if the gain must exceed chance; "
                f'several are joined by `and`: "{EXAMPLE}".'
            )
        relative = match["champion"] is not None
        number = (match["offset"] or "0").replace(" ", "") if relative else match["number"]
        sure = None if match["confidence"] is None else float(match["confidence"])
        found = cls(text.strip(), match["metric"], match["sign"], relative, float(number), key, sure)
        found._check_name()
        found._check_range()
        found._check_confidence()
        return found

    def check_direction(self) -> None:
        """Raise InputError for a comparison with the champion by which the worse model wins."""
        low, high = LOSS.fullmatch(self.metric), GAIN.fullmatch(self.metric)
        if self.relative and ((low and self.sign in (">", ">=")) or (high and self.sign in ("<", "<="))):
            better, sign = ("smaller", "<") if low else ("larger", ">")
            raise InputError(
                f"{self.key} {self.text!r}: {self.metric} is better the {better} it is, so that the worse "
                f'model would become champion: "{self.metric} {sign} champion".'
            )

    def _check_name(self) -> None:
        if KNOWN_METRIC.fullmatch(self.metric) is None:
            hint = nearest(self.metric, METRICS) or f" There are: {', '.join(METRICS)}."
            raise InputError(f"{self.key} {self.text!r}: there is no metric {self.metric!r}.{hint}")

    def _check_range(self) -> None:
        """Raise InputError for a comparison that no value of the metric can meet."""
        is_share = SHARE.search(self.metric) is not None
        least = 0.0 if is_share or LOSS.fullmatch(self.metric) else None
        largest = 1.0 if is_share or GAIN.fullmatch(self.metric) else None
        if self.relative:  # the champion's value is one of the metric's, too
            least, largest = (-1.0, 1.0) if is_share else (None, None)
        compare = COMPARISONS[self.sign]
        best = largest if self.sign in (">", ">=") else least
        if best is not None and not compare(best, self.bound):
            values = "differences of two models" if self.relative else "values"
            ends = f"of at least {least:g}" if largest is None else f"of at most {largest:g}"
            ends = ends if least is None or largest is None else f"from {least:g} to {largest:g}"
            raise InputError(
                f"{self.key} {self.text!r}: this never holds, as {self.metric} has {values} {ends}."
            )

    def _check_confidence(self) -> None:
        if self.confidence is None:
            return
        if not 0.5 <= self.confidence < 1:
            raise InputError(
                f"{self.key} {self.text!r}: give a confidence from 0.5 to below 1, such as 0.95."
            )
        if self.metric != ACCURACY and not self.metric.endswith(WORST):
            raise InputError(
                f"{self.key} {self.text!r}: a confidence is known for accuracy and worst_group_accuracy, "
                f"which are means over rows; compare {self.metric} without one."
            )
        if not self.relative or self.sign not in (">", ">="):
            raise InputError(
                f"{self.key} {self.text!r}: a confidence says that the challenger is above the champion: "
                f'"{self.metric} > champion with confidence {self.confidence:g}".'
            )

    def check_task(self, is_regression: bool) -> None:
        """Raise InputError for a metric of accuracy of a regression, or of losses of a classification."""
        if not is_regression and self.metric.endswith(OF_NUMBERS) and not self.metric.endswith("log_loss"):
            raise InputError(
                f"{self.key} {self.text!r}: a classification has no {self.metric}. Its metrics are accuracy, "
                f"worst_group_accuracy, balanced_accuracy, log_loss, auprc, ece and cvar_ALPHA."
            )
        if is_regression and self.metric.endswith(ACCURACY):
            raise InputError(
                f"{self.key} {self.text!r}: a regression has no {self.metric}. Its metrics are loss, rmse, "
                f'mae, r2 and worst_group_loss: "worst_group_loss < champion".'
            )

    def evaluate(
        self,
        challenger: Mapping[str, float],
        champion: Mapping[str, float] | None,
        test: PairedTest | None = None,
    ) -> tuple[bool, str]:
        """Return whether the condition holds, and the reason. Without a champion, a comparison with it holds.

        Raises InputError if the challenger lacks the metric.
        """
        if self.metric not in challenger:
            hint = nearest(self.metric, challenger) or f" There are: {', '.join(challenger)}."
            raise InputError(f"{self.key} {self.text!r}: there is no metric {self.metric!r}.{hint}")
        mine = challenger[self.metric]
        if self.relative and champion is None:
            return True, f"there is no champion yet ({self.metric} {mine:.4f})"
        if self.relative and champion is not None and self.metric not in champion:
            return False, f"the champion has no {self.metric} on these rows"
        theirs = (champion or {}).get(self.metric, 0.0) if self.relative else 0.0
        beside = f"champion {theirs:.4f}, asked: {self.text}" if self.relative else f"asked: {self.text}"
        if self.confidence is not None and test is not None:
            found = test(self.metric, self.bound, self.confidence)
            return found.holds, f"{self.metric} {mine:.4f}, {beside}: {found.text}"
        holds = COMPARISONS[self.sign](mine, theirs + self.bound)
        return holds, f"{self.metric} {mine:.4f}, {beside}"


def check_model_name(name: str, key: str) -> None:
    """Raise InputError, which has the key, for a name that MLflow's registry does not take or cannot find."""
    if name.strip() and not set(name) & set("/:") and not {"'", '"'} <= set(name):
        return
    another = re.sub("[^A-Za-z0-9_-]+", "-", name).strip("-") or "model"
    raise InputError(
        f"{key} {name!r}: MLflow takes no '/', no ':', not both ' and \" in a name, and no blank name. Give "
        f"another, such as {another}."
    )


@dataclass(frozen=True)
class PromotionRule:
    """One or several conditions, all of which must hold."""

    conditions: tuple[Condition, ...]

    @classmethod
    def parse(cls, text: str, key: str = "--promote-if") -> PromotionRule:
        """Parse conditions joined by ``and``. Raises InputError, naming the key, for any other text."""
        found = cls(tuple(Condition.parse(part, key) for part in AND.split(text)))
        for condition in found.conditions:
            condition.check_direction()
        return found

    def evaluate(
        self,
        challenger: Mapping[str, float],
        champion: Mapping[str, float] | None,
        test: PairedTest | None = None,
    ) -> tuple[bool, str]:
        """Return whether all conditions hold, and the reasons; see :meth:`Condition.evaluate`."""
        found = [condition.evaluate(challenger, champion, test) for condition in self.conditions]
        return all(holds for holds, _ in found), "; ".join(reason for _, reason in found)

    def unbounded_loss(self, challenger: Mapping[str, float], champion: Mapping[str, float]) -> str:
        """Say that the challenger has much less accuracy where no condition bounds it; else an empty text."""
        if ACCURACY in (condition.metric for condition in self.conditions):
            return ""
        mine, theirs = challenger.get(ACCURACY), champion.get(ACCURACY)
        if mine is None or theirs is None or theirs - mine <= MAX_UNASKED_LOSS:
            return ""
        return f"its accuracy is {mine:.4f}, the champion's was {theirs:.4f}, and the rule has no bound on it"
