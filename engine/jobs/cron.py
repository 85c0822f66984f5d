"""Which times of a cron expression are due: pure functions of times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from typing import Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.core.errors import InputError

CatchUp = Literal["none", "last", "all"]


@dataclass(frozen=True)
class Cron:
    """Times in a timezone, as Debian's cron has them, also where clocks are put forward or back."""

    expression: str
    timezone: str = "UTC"

    @classmethod
    def parse(cls, expression: str, timezone: str = "UTC") -> Cron:
        """Raises InputError for an expression or a timezone that is none, or without the extra."""
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
        try:
            CronSim(expression, datetime.now(UTC))
        except CronSimError as error:
            raise InputError(
                f"--cron {expression!r} is no cron expression: {error}. Write five fields (minute, hour, "
                f'day, month, weekday), such as "0 2 * * *" for every night at two.'
            ) from None
        return cls(expression, timezone)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Times after a moment, in UTC, in order; ends where there is none within decades."""
        from cronsim import CronSim

        for found in CronSim(self.expression, moment.astimezone(ZoneInfo(self.timezone))):
            yield found.astimezone(UTC)

    def missed(self, last: datetime, now: datetime) -> list[datetime]:
        """Times after ``last``, up to and with ``now``."""
        return list(takewhile(lambda found: found <= now, self.after(last)))


def caught_up(missed: list[datetime], policy: CatchUp) -> list[datetime]:
    """Which of the missed times are run after all."""
    return {"none": [], "last": missed[-1:], "all": missed}[policy]


def catch_up_policy(text: str) -> CatchUp:
    """Raises InputError for another word."""
    for policy in get_args(CatchUp):
        if text == policy:
            found: CatchUp = policy
            return found
    raise InputError(f"--catch-up {text}: choose none, last or all.")
