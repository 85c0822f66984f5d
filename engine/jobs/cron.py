"""Due times of a cron expression, as pure functions of the time."""

from __future__ import annotations

import re
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
        try:
            ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise InputError(
                f"--timezone {timezone}: there is no such timezone. Write it like Europe/Berlin, or UTC."
            ) from None
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
