"""What the commands share: their options, and errors as one paragraph and an exit code."""

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

from engine.core.errors import Exit, RowsieveError
from engine.core.redaction import redact

if TYPE_CHECKING:
    from engine.recipe.recipe import Recipe

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
    """Read a recipe, with what ``--set`` changes."""
    from engine.recipe.recipe import Recipe

    return Recipe.load(recipe, overrides or ())


class Terminated(KeyboardInterrupt):
    """SIGTERM: of a cancelled job, or of a pod that is moved."""


@contextmanager
def stopping_in_order() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that the run gives its lease back; a second one ends all.

    Whoever goes on with the run, on another node mostly, need not wait then until the lease is stale.
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
def shown_errors(verbose: bool) -> Iterator[None]:
    """Turn errors into one paragraph and an exit code; the trace only with -v."""
    try:
        yield
    except typer.Exit:
        raise
    except BrokenPipeError:  # as with `| head`: whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(PIPE_CLOSED) from None
    except RowsieveError as error:
        if verbose:
            traceback.print_exc()
        else:
            _complain(str(error))
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt as signalled:
        _complain("stopped. What was committed is kept; the same command goes on from there.")
        raise typer.Exit(TERMINATED if isinstance(signalled, Terminated) else INTERRUPTED) from None
    except Exception as error:
        if verbose:
            traceback.print_exc()
        else:
            _complain(f"unexpected {type(error).__name__}: {error} (-v shows where; please report it)")
        raise typer.Exit(Exit.CRASH) from None


def _complain(text: str) -> None:
    styled = sys.stderr.isatty()
    said = redact(text)
    typer.echo((typer.style("error: ", fg="red", bold=True) if styled else "error: ") + said, err=True)
