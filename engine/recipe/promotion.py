"""The user's condition on which a challenger becomes champion: one comparison of a metric."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.core.errors import InputError
from engine.core.suggestions import nearest

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
)


@dataclass(frozen=True)
class Condition:
    """A comparison such as ``METRIC > champion + 0.01`` or ``METRIC > 0.8``."""

    text: str
    metric: str
    sign: str
    relative: bool
    """Whether the bound is the champion's value plus ``bound``."""
    bound: float
    key: str = "--promote-if"
    """Option or key that holds the condition, for error messages."""

    @classmethod
    def parse(cls, text: str, key: str = "--promote-if") -> Condition:
        """Parse a comparison. Raises InputError, naming the key, for any other text."""
        match = PATTERN.fullmatch(text)
        if match is None:
            raise InputError(
                f"{key} {text!r}: write METRIC, one of > >= < <=, then a number or `champion`, plus "
                f'or minus a number if you like: "worst_group_accuracy > champion + 0.01".'
            )
        relative = match["champion"] is not None
        number = (match["offset"] or "0").replace(" ", "") if relative else match["number"]
        return cls(text, match["metric"], match["sign"], relative, float(number), key)

    def evaluate(
        self, challenger: Mapping[str, float], champion: Mapping[str, float] | None
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
        holds = COMPARISONS[self.sign](mine, theirs + self.bound)
        beside = f"champion {theirs:.4f}, asked: {self.text}" if self.relative else f"asked: {self.text}"
        return holds, f"{self.metric} {mine:.4f}, {beside}"
