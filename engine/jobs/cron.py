"""Due times of a cron expression, as pure functions of the time."""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.core.errors import InputError

CatchUp = Literal["none", "last", "all"]


FIELDS = {"minute": 60, "hour": 24, "day": 31, "month": 12, "weekday": 7}
"""The fields of a cron expression in order, and how many values each has."""
FIELD = re.compile(r"[\w*,/?#-]+", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_KUBERNETES_FIELDS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "minute": (0, 59, ()),
    "hour": (0, 23, ()),
    "day": (1, 31, ()),
    "month": (1, 12, _MONTHS),
    "weekday": (0, 6, _WEEKDAYS),
}
"""Lowest and highest value of each field, and the names of its values in order."""
_KUBERNETES_PART = re.compile(r"(?:[*?]|(\w+)(?:-(\w+))?)(?:/\d+)?", re.ASCII)


def check_fields(expression: str, option: str) -> None:
    """Raise InputError unless an expression has five fields with steps that fit them.

    cron itself reads ``*/999`` as the first value only, and some kinds of cron accept a sixth field, seconds.
    """
    fields, wrong = expression.split(), ""
    if len(fields) != len(FIELDS) or not all(FIELD.fullmatch(field) for field in fields):
        wrong = f"it has {len(fields)} fields, or signs that cron does not know"
    for (name, values), field in zip(FIELDS.items(), fields, strict=False):
        for step in map(int, re.findall(r"/(\d+)", field)):
            if not 1 <= step <= values:
                wrong = wrong or f"the step {step} of the {name} is not between 1 and {values}"
    if wrong:
        raise InputError(
            f"{option} {expression!r} is not a cron expression: {wrong}. Write five fields "
            f"({', '.join(FIELDS)}), "
            'such as "0 2 * * *" for every night at two.'
        )


def check_for_kubernetes(expression: str, option: str) -> None:
    """Raise InputError unless Kubernetes takes an expression: it knows no ``#``, ``L`` or weekday 7."""
    check_fields(expression, option)
    for (field, (low, high, names)), text in zip(_KUBERNETES_FIELDS.items(), expression.split(), strict=True):
        if not all(_is_within(part, low, high, names) for part in text.split(",")):
            named = f", or {names[0]} to {names[-1]}" if names else ""
            raise InputError(
                f"{option} {expression!r}: Kubernetes does not take the {field} {text!r}. Write numbers from "
                f"{low} to {high}{named}, and *, ranges (1-5), steps (*/2) and lists (1,3) of them."
            )
    _, _, day, month, weekday = expression.split()
    firsts = [int(part) for part in re.findall(r"(?:^|,)(\d+)", day)]
    # Where the weekday is restricted, too, either of the two suffices. A step beyond 1 restricts it.
    every_weekday = any(part in ("*", "?", "*/1", "?/1") for part in weekday.split(","))
    if every_weekday and len(firsts) == len(day.split(",")) and min(firsts) > _longest(month):
        raise InputError(f"{option} {expression!r} is never due: no such month has a day {min(firsts)}.")


def _longest(months: str) -> int:
    """Return the days of the longest of the months of a field that Kubernetes takes."""
    found: set[int] = set()
    for part in months.lower().split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first = 1 if low in ("*", "?") else _month(low)
        last = _month(high) if high else 12 if step or low in ("*", "?") else first
        found.update(range(first, last + 1, int(step or 1)))
    return max(monthrange(2024, number)[1] for number in found)


def _month(text: str) -> int:
    return _MONTHS.index(text) + 1 if text in _MONTHS else int(text)


def _is_within(part: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    """Return whether a part of a field is a star, a value or a rising range between two numbers."""
    found = _KUBERNETES_PART.fullmatch(part.lower())
    if found is None:
        return False
    ends = [text for text in found.groups() if text is not None]
    known = {name: low + position for position, name in enumerate(names)}
    values = [int(text) if text.isdigit() else known.get(text, high + 1) for text in ends]
    return values == sorted(values) and all(low <= value <= high for value in values)


def check_timezone(timezone: str) -> None:
    """Raise InputError for a timezone that does not exist."""
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InputError(
            f"--timezone {timezone}: there is no such timezone. Write it like Europe/Berlin, or UTC."
        ) from None


@dataclass(frozen=True)
class Cron:
    """A cron expression in a timezone, with the rules of Debian's cron at changes to and from summer time."""

    expression: str
    timezone: str = "UTC"

    @classmethod
    def parse(cls, expression: str, timezone: str = "UTC") -> Cron:
        """Check and parse an expression.

        Raises InputError for an invalid expression or timezone, or if cronsim is not installed.
        """
        check_timezone(timezone)
        try:
            from cronsim import CronSim, CronSimError
        except ImportError:
            raise InputError("rowsieve schedule needs cronsim: pip install 'rowsieve[schedule]'.") from None
        check_fields(expression, "--cron")
        try:
            CronSim(expression, datetime.now(UTC))
        except CronSimError as error:
            raise InputError(
                f"--cron {expression!r} is not a cron expression: {error}. Write five fields (minute, hour, "
                f'day, month, weekday), such as "0 2 * * *" for every night at two.'
            ) from None
        return cls(expression, timezone)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the times after a moment in order, in UTC; ends if there is none within decades."""
        from cronsim import CronSim

        for found in CronSim(self.expression, moment.astimezone(ZoneInfo(self.timezone))):
            yield found.astimezone(UTC)

    def missed(self, last: datetime, now: datetime) -> list[datetime]:
        """Return the times after ``last``, up to and including ``now``."""
        return list(takewhile(lambda found: found <= now, self.after(last)))


def caught_up(missed: list[datetime], policy: CatchUp) -> list[datetime]:
    """Return the missed times that ``policy`` runs after all, which are the last of them."""
    return {"none": [], "last": missed[-1:], "all": missed}[policy]


def catch_up_policy(text: str) -> CatchUp:
    """Parse the value of ``--catch-up``. Raises InputError for an unknown one."""
    for policy in get_args(CatchUp):
        if text == policy:
            found: CatchUp = policy
            return found
    raise InputError(f"--catch-up {text}: choose none, last or all.")
