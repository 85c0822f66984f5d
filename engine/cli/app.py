"""The command ``rowsieve``: registers one module for each command."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from engine.cli.common import print_errors
from engine.cli.compare import compare
from engine.cli.cues import cues
from engine.cli.deploy import deploy
from engine.cli.explain import explain
from engine.cli.export import export
from engine.cli.groups import groups
from engine.cli.init import init
from engine.cli.jobs import cancel, logs, submit
from engine.cli.lineage import lineage
from engine.cli.operators import operators
from engine.cli.plan import plan
from engine.cli.policy import policy
from engine.cli.predict import predict
from engine.cli.quarantine import quarantine
from engine.cli.retract import retract
from engine.cli.retrain import retrain
from engine.cli.run import run
from engine.cli.schedule import schedule
from engine.cli.schema import schema
from engine.cli.sources import sources
from engine.cli.status import status
from engine.cli.validate import validate
from engine.cli.versions import diff, versions
from engine.core.policy import apply_policy
from engine.core.software_versions import package_versions
from engine.core.terminal import SAFE_MESSAGES, format_warning

REPORT = (
    "There is no command 'report': `rowsieve run` writes the report of each version and says where it is, "
    "OUTPUT/reports/VERSION.html."
)


class CommandGroup(typer.core.TyperGroup):
    """The commands, and an answer to the name of one that users expect."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name, and the rest of them."""
        if args[:1] == ["report"]:
            ctx.fail(REPORT)
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=CommandGroup,
    help="Groups, outliers, weights and splits for every row of a dataset, without group labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line interface."""
    app()


def show_version(asked: bool) -> None:
    """Print the installed version and end, if ``--version`` is given."""
    if asked:
        typer.echo(f"rowsieve {package_versions()['rowsieve']}")
        raise typer.Exit


@app.callback()
def before_every_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Groups, outliers, weights and splits for every row of a dataset, without group labels."""
    with print_errors(verbose=False):
        apply_policy()
    logging.getLogger("rowsieve").addFilter(SAFE_MESSAGES)
    warnings.formatwarning = format_warning


COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "From a dataset to a version": (init, validate, plan, run, status, compare, schedule),
    "Look at a version": (groups, cues, explain, quarantine, versions, diff, lineage),
    "Use or withdraw a version": (export, retract),
    "Train and predict": (retrain, predict),
    "On a cluster": (submit, logs, cancel),
    "Reference and settings": (operators, sources, policy, schema),
}
"""Commands by the headings of ``rowsieve --help``; ``deploy`` has commands of its own."""

for heading, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=heading)(command)
app.add_typer(deploy, name="deploy", rich_help_panel="On a cluster")
