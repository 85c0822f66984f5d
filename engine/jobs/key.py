"""Which job a submission is: its key, and what to do when the cluster knows it already. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engine.core.digests import digest
from engine.core.errors import Exit, InputError

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class State(StrEnum):
    """States of a Ray job."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def over(self) -> bool:
        """Whether nothing will change it any more."""
        return self not in (State.PENDING, State.RUNNING)


@dataclass(frozen=True)
class Decision:
    """The job's id, and whether it is to be made; if not, it is there."""

    id: str
    new: bool


def planned_key(name: str, version: str, output: str) -> str:
    """Key of a run whose plan is known: the version it publishes, and where."""
    return f"{name}-{version}-{digest(output)[:6]}"


def given_key(name: str, key: str, recipe: Mapping[str, Any]) -> str:
    """Key of a run whose source cannot be listed from here: what the user calls it, and the resolved recipe.

    Raises InputError where ``key`` is no plain word.
    """
    if not KEY.fullmatch(key):
        raise InputError(
            f"--key {key}: letters, digits, '.', '_' and '-' only, at most 64, for example 2026-11-21."
        )
    return f"{name}-{key}-{digest(dict(recipe))[:12]}"


def decide(key: str, known: Mapping[str, State], *, again: bool = False) -> Decision:
    """What a submission of ``key`` does on a cluster that has the jobs ``known``.

    A job that waits, runs or has succeeded is the same run: nothing is made, unless ``again`` asks to repeat
    one that has succeeded. After a failed or stopped one a new attempt is made: ``<key>.2``, ``<key>.3``, ...
    """
    latest = max((n for name in known if (n := attempt_of(key, name))), default=0)
    if latest:
        name = _attempt(key, latest)
        state = known[name]
        if not state.over or (state == State.SUCCEEDED and not again):
            return Decision(name, new=False)
    return Decision(_attempt(key, latest + 1), new=True)


def attempt_of(key: str, name: str) -> int:
    """1, 2, ... where ``name`` is that attempt at ``key``; 0 where it is another job."""
    if name == key:
        return 1
    number = name.removeprefix(f"{key}.")
    return int(number) if number != name and number.isdigit() and int(number) > 1 else 0


def _attempt(key: str, number: int) -> str:
    return key if number == 1 else f"{key}.{number}"


def exit_code(state: State, code: int | None) -> Exit:
    """Exit code of ``rowsieve submit --wait``: that of the run in the job, as far as it had one."""
    if state == State.SUCCEEDED:
        return Exit.DONE
    return Exit(code) if code in set(Exit) - {Exit.DONE} else Exit.CRASH
