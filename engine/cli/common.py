"""Options that commands share, and the conversion of errors to one paragraph and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.core.errors import (
    Exit,
    InputError,
    RowsieveError,
    is_out_of_memory,
    is_refused,
    out_of_memory,
    system_error,
)
from engine.core.redaction import redact
from engine.core.terminal import printable

if TYPE_CHECKING:
    from engine.recipe.recipe import Recipe, RunSection

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="Recipe, a YAML file")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a key of the recipe; repeatable")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show Ray's own output, and traces of errors")]
LogFormat = Annotated[str, typer.Option(help="auto, rich, plain or json")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON")]
INTERRUPTED, PIPE_CLOSED, TERMINATED = 130, 141, 143
"""Exit codes after SIGINT, SIGPIPE and SIGTERM, as the shell counts them."""


def load(recipe: Path, overrides: list[str] | None) -> Recipe:
    """Read a recipe and apply the ``--set`` overrides."""
    from engine.recipe.recipe import Recipe

    return Recipe.load(recipe, overrides or ())


def run_section(executor: str) -> RunSection:
    """Return the section ``run`` that stands for ``--executor``. Raises InputError for an unknown name."""
    from engine.recipe.recipe import RunSection

    if executor not in ("auto", "ray", "local"):
        raise InputError(f"--executor {executor}: give auto, ray or local.")
    return RunSection.model_validate({"executor": executor})


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM, which a cancelled job or an evicted pod receives."""


OWN_PACKAGES = ("connectors", "engine", "operators", "rowsieve")
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "faiss": "faiss-cpu",
    "lance": "pylance",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Modules whose packages are installed under other names."""


@contextmanager
def finish_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that the run releases its lease; a second one kills.

    A successor, usually on another node, then need not wait until the lease is stale.
    """

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def print_errors(verbose: bool) -> Iterator[None]:
    """Convert errors to one paragraph and an exit code; show the trace only with -v."""
    try:
        yield
    except typer.Exit:
        raise
    except BrokenPipeError:  # as with `| head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from None
    except RowsieveError as error:
        _print_trace() if verbose else _print_error(str(error))
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt as signalled:
        _print_error("stopped. Committed work is kept; the same command continues from there.")
        raise typer.Exit(TERMINATED if isinstance(signalled, Terminated) else INTERRUPTED) from None
    except Exception as error:
        raise typer.Exit(_report(error, verbose)) from None


def _report(error: Exception, verbose: bool) -> Exit:
    """Print an error that is not one of the engine's own, or its trace; return the exit code."""
    package, known, refused = _missing_package(error), _says_what_to_do(error), is_refused(error)
    code = Exit.BAD_INPUT if package or known or refused else Exit.CRASH
    if verbose:
        _print_trace()
    elif known:
        _print_error(str(error))
    elif isinstance(error, OSError) and refused:
        found = system_error(error)
        _print_error(str(found))
        return found.exit_code
    elif is_out_of_memory(error):
        _print_error(str(out_of_memory(error)))
        return Exit.INFEASIBLE
    elif package:
        _print_error(
            f"the package {package!r} is not installed and needed here: "
            f"pip install {_DISTRIBUTIONS.get(package, package)}, "
            "or `pip install rowsieve`, which brings all that a run needs."
        )
    else:
        _print_error(f"unexpected {type(error).__name__}: {error} (-v shows where; please report it)")
    return code


def _says_what_to_do(error: Exception) -> bool:
    """Return whether an error is one of the packages below the engine, whose texts are for users."""
    from connectors.errors import ConnectorError
    from operators.base import OperatorError

    return isinstance(error, ConnectorError | OperatorError)


def _missing_package(error: Exception) -> str:
    """Return the package whose absence is the reason of an error; empty for any other reason."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return "" if package in OWN_PACKAGES else package


def _print_trace() -> None:
    typer.echo(printable(redact(traceback.format_exc())), err=True)


def _print_error(text: str) -> None:
    styled = sys.stderr.isatty()
    safe = printable(redact(text))
    typer.echo((typer.style("error: ", fg="red", bold=True) if styled else "error: ") + safe, err=True)
