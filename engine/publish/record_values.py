"""Values that a record for MLflow may hold, so that MLflow can store each of them.

A record lies in an output that may be shared, or was written by another release. MLflow's client raises
errors of any kind for values that it does not expect, and they look as if the server did not answer.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

STATUSES = ("RUNNING", "FINISHED", "FAILED", "KILLED")
DATASET_KEYS = ("name", "digest", "source_type", "source")
"""Keys of every dataset."""
OPTIONAL_DATASET_KEYS = ("schema", "profile")
LARGEST_INT = 2**63 - 1
"""Largest whole number of a database."""


def _checked_status(status: str) -> str:
    if status not in STATUSES:
        raise ValueError(f"use one of {', '.join(STATUSES)}")
    return status


def _checked_dataset(dataset: dict[str, str]) -> dict[str, str]:
    """Return a dataset, or an empty one for none. Raises ValueError for keys that MLflow does not know."""
    known = (*DATASET_KEYS, *OPTIONAL_DATASET_KEYS)
    unknown = [key for key in dataset if key not in known]
    missing = [key for key in DATASET_KEYS if key not in dataset] if dataset else []
    if unknown:
        raise ValueError(f"the key {unknown[0]!r} is unknown; use {', '.join(known)}")
    if missing:
        raise ValueError(f"the key {missing[0]!r} is missing")
    return dataset


Count = Annotated[int, Field(ge=0, le=LARGEST_INT)]
"""A time in milliseconds since 1970, or the number of a step."""
Status = Annotated[str, AfterValidator(_checked_status)]
DatasetValues = Annotated[dict[str, str], AfterValidator(_checked_dataset)]


def reason_of(error: ValueError) -> str:
    """Return in a few words why values are not a record."""
    if not isinstance(error, ValidationError):
        return str(error).rstrip(".")
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    found = repr(first["input"])
    shown = found if len(found) <= 60 else f"{found[:60]}..."
    return f"{place or 'its content'}: {first['msg'].removeprefix('Value error, ')}, not {shown}"
