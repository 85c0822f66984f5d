"""Keys of submissions, and the choice between an existing job and a new attempt. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from engine.core.digests import digest
from engine.core.errors import Exit, InputError

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class JobState(StrEnum):
    """States of a Ray job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def is_final(self) -> bool:
        """Return whether the job has ended, so that its state cannot change any more."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True)
class Attempt:
    """The id of a submission's job, and whether the job has to be created (``new``) or exists already."""

    id: str
    new: bool


def planned_key(name: str, version: str, output: str) -> str:
    """Return the key of a run with a known plan, made of the version it publishes and of the output."""
    return f"{name}-{version}-{digest(output)[:6]}"


def given_key(name: str, key: str, recipe: str) -> str:
    """Return the key of a run without a plan, made of the user's ``key`` and of the recipe in sorted YAML.

    Raises InputError if ``key`` holds other characters than ``KEY`` allows.
    """
    if not KEY.fullmatch(key):
        raise InputError(
            f"--key {key}: use at most 64 letters, digits, '.', '_' and '-', for example 2026-11-21."
        )
    return f"{name}-{key}-{digest(recipe)[:12]}"


def choose_attempt(key: str, known: Mapping[str, JobState], *, again: bool = False) -> Attempt:
    """Decide whether a submission of ``key`` needs a new job on a cluster that has the jobs ``known``.

    A job that waits, runs or has succeeded is the same run: no job is created, unless ``again`` asks to
    repeat one that has succeeded. After a failed or stopped job, a new attempt is made: ``<key>.2``,
    ``<key>.3``, ...
    """
    latest = max((n for name in known if (n := attempt_of(key, name))), default=0)
    if latest:
        name = _job_id(key, latest)
        state = known[name]
        if not state.is_final or (state == JobState.SUCCEEDED and not again):
            return Attempt(name, new=False)
    return Attempt(_job_id(key, latest + 1), new=True)


def attempt_of(key: str, name: str) -> int:
    """Return the number of the attempt at ``key`` that ``name`` is, from 1; 0 if it is another job."""
    if name == key:
        return 1
    number = name.removeprefix(f"{key}.")
    return int(number) if number != name and number.isdigit() and int(number) > 1 else 0


def _job_id(key: str, number: int) -> str:
    return key if number == 1 else f"{key}.{number}"


def exit_code(state: JobState, code: int | None) -> Exit:
    """Return the exit code of ``rowsieve submit --wait``: the run's own code, or CRASH if it has none."""
    if state == JobState.SUCCEEDED:
        return Exit.DONE
    return Exit(code) if code in set(Exit) - {Exit.DONE} else Exit.CRASH
