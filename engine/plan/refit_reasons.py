"""Reasons for which an incremental run fits an operator again.

A reason is a cause and, where the sentence needs one, a detail. A manifest holds the sentence alone, under
``incremental.fitted``; :meth:`Cause.of` reads the cause from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """Causes, each with its sentence, in which ``{}`` stands for the detail."""

    OTHER_BASE = "the base has another seed or source"
    FULL = "everything is computed again"
    OTHER_ROWS = "operators of the base have learnt from other rows"
    NEW = "it is new in the recipe"
    VERSION = "its method has another version: {}"
    PARAMETERS = "its parameters have changed: {}"
    INPUTS = "its inputs have changed"
    CANNOT_PLACE = "it cannot place new rows"
    """The cause of an operator that is fitted again in every incremental run."""
    LEARNS = "it is to learn from old and new rows"
    ROWS_GONE = "rows are gone"
    REPLAYED = "rows that were set aside are tried again"
    NOT_STORED = "the store no longer has what it left"
    READS_FITTED = "{} is fitted again"
    """The operator reads from another one that is fitted again. Last, since :meth:`of` takes any detail."""

    @classmethod
    def of(cls, sentence: str) -> Cause | None:
        """Return the cause of a recorded sentence; None for that of another release."""
        for cause in cls:
            before, has_detail, after = cause.partition("{}")
            if sentence == cause or (has_detail and sentence.startswith(before) and sentence.endswith(after)):
                return cause
        return None


@dataclass(frozen=True)
class Reason:
    """The reason for fitting one operator again."""

    cause: Cause
    detail: str = ""

    def __str__(self) -> str:
        """Return the sentence that messages and manifests show."""
        return self.cause.format(self.detail)


def learnt_again(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the operators of a recorded increment that have learnt again, with their reasons.

    Those that do so in every incremental run are left out, and so are those that only read from others.
    """
    fitted = {name: str(why) for name, why in record.get("fitted", {}).items()}
    usual = (Cause.CANNOT_PLACE, Cause.READS_FITTED)
    return {name: why for name, why in fitted.items() if Cause.of(why) not in usual}
