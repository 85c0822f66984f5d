"""Errors a user can act on. Each carries the exit code of the command line."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Exit(IntEnum):
    """Exit codes of ``rowsieve``."""

    DONE = 0
    CRASH = 1
    BAD_INPUT = 2
    BUDGET = 3
    INFEASIBLE = 4
    LOCKED = 5


class RowsieveError(Exception):
    """Base: one paragraph that names the place and the fix."""

    exit_code: ClassVar[Exit] = Exit.CRASH


class InputError(RowsieveError):
    """The recipe or the data cannot be used as they are."""

    exit_code = Exit.BAD_INPUT


class BudgetError(RowsieveError):
    """More rows are faulty than ``source.max_error_rate`` allows."""

    exit_code = Exit.BUDGET


class InfeasibleError(RowsieveError):
    """The cluster cannot give what an operator asks for."""

    exit_code = Exit.INFEASIBLE


class LockedError(RowsieveError):
    """Another run is writing to the same output."""

    exit_code = Exit.LOCKED


def system_error(error: OSError) -> InputError:
    """What the operating system refuses (a full disk, a missing right), with what to do about it."""
    reason = f"{error.strerror}: {error.filename}" if error.strerror and error.filename else str(error)
    who = "object store" if "://" in str(error.filename) else "operating system"
    return InputError(
        f"The {who} refuses: {reason}. Free space, mend the permissions, or choose another "
        f"output.path. What was committed is kept; the same command goes on from there."
    )
