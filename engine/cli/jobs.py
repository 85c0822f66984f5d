"""The commands for jobs of a Ray cluster: ``submit``, ``logs``, ``cancel`` and ``status --address``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from engine.cli.common import INTERRUPTED, AsJson, Overrides, RecipeFile, Verbose, load, print_errors
from engine.cli.safe_output import echo
from engine.core.errors import Exit, InputError, RowsieveError
from engine.core.terminal import printable

if TYPE_CHECKING:
    from engine.jobs.handle import JobHandle, JobInfo
    from engine.jobs.submission import Submission

ADDRESS = "RAY_API_SERVER_ADDRESS"
Address = Annotated[
    str,
    typer.Option(envvar=ADDRESS, help="Dashboard of the cluster's head, such as http://head:8265"),
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, as `rowsieve submit` prints it")]


def submit(
    recipe: RecipeFile,
    address: Address,
    overrides: Overrides = None,
    wheel: Annotated[
        Path | None, typer.Option(help="Wheel of Rowsieve to run, not this one's source")
    ] = None,
    installed: Annotated[bool, typer.Option(help="The cluster has Rowsieve: ship no code")] = False,
    working_dir: Annotated[
        Path | None, typer.Option(help="Folder to ship: own modules, small data; hidden files are left out")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Files of that folder to leave out; repeatable"),
    ] = None,
    shared_files: Annotated[
        bool, typer.Option(help="The cluster sees this machine's files under the same paths")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Environment variable; repeatable")
    ] = None,
    env_from: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Environment variable with its value here; repeatable"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Name of the run where its source cannot be listed from here: a date")
    ] = None,
    again: Annotated[bool, typer.Option(help="Repeat a run that has succeeded")] = False,
    wait: Annotated[
        bool,
        typer.Option(
            help="Show the job's output, with --json on standard error, and exit with the job's code"
        ),
    ] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Run a recipe as a job of a Ray cluster. Submitting the same run twice gives one job."""
    with print_errors(verbose):
        if wheel and installed:
            raise InputError("Give --wheel or --installed, not both.")
        from engine.jobs.package import INSTALLED, SOURCE
        from engine.jobs.submission import submit as send

        submitted = send(
            load(recipe, overrides),
            address,
            key=key,
            code=wheel or (INSTALLED if installed else SOURCE),
            working_dir=working_dir,
            excludes=exclude or (),
            shared_files=shared_files,
            env=variables(env or (), env_from or ()),
            again=again,
        )
        if not wait:
            _show(submitted, submitted.info, as_json)
        elif as_json:
            ended = _wait(submitted.handle, sys.stderr)
            _show(submitted, ended, as_json)
            _exit_as(ended)
        else:
            _show(submitted, submitted.info, as_json)
            _exit_as(_wait(submitted.handle, sys.stdout))


def logs(
    job: Job,
    address: Address,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue until the job ends")] = False,
    verbose: Verbose = False,
) -> None:
    """Show the output of a job."""
    with print_errors(verbose):
        from engine.jobs.handle import attach

        handle = attach(job, address)
        if follow:
            _print(handle, sys.stdout)
        else:
            sys.stdout.write(printable(handle.logs(), colours=True))


def cancel(job: Job, address: Address, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Stop a job. The work that its run has committed is kept."""
    with print_errors(verbose):
        from engine.jobs.handle import attach

        handle = attach(job, address)
        stopped = handle.cancel()
        if as_json:
            from engine.cli.output import show_json

            show_json(handle.status().to_dict() | {"stopped": stopped})
        elif stopped:
            echo(f"{job}: stopped. Committed work is kept; submitting it again continues from there.")
        else:
            echo(f"{job}: has already ended: {handle.status().description}.")


def address_for(recipe_or_job: Path) -> str | None:
    """Return the environment's cluster if the argument can only be a job's id; otherwise None."""
    is_file = recipe_or_job.suffix in (".yaml", ".yml") or recipe_or_job.exists()
    return None if is_file else os.environ.get(ADDRESS)


def show_jobs(recipe_or_job: Path, address: str, *, as_json: bool) -> None:
    """Print the state of a job, or of every job of a recipe: ``rowsieve status RECIPE|JOB --address``."""
    from engine.cli.output import show_json
    from engine.jobs.handle import attach, jobs_of

    if recipe_or_job.is_file():
        name = load(recipe_or_job, None).name
        found = jobs_of(name, address)
        if not found and not as_json:
            echo(f"{address} has no job of the recipe {name}.")
    else:
        found = [attach(str(recipe_or_job), address).status()]
    if as_json:
        records = [info.to_dict() for info in found]
        show_json(records if recipe_or_job.is_file() else records[0])
        return
    for info in found:
        _show_state(info)


def _show_state(info: JobInfo) -> None:
    echo(f"{info.id}: {info.description}")
    for name in ("recipe", "version", "key", "output"):
        if value := info.metadata.get(name):
            echo(f"  {name:8}{value}")
    if info.state.is_final and info.exit_code != Exit.DONE:
        echo(f"  exit    {int(info.exit_code)}, {reason(info)}")


def reason(info: JobInfo) -> str:
    """Return in one line why a job failed: its last error, otherwise the message of Ray."""
    lines = [line.strip() for line in info.message.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else lines[0] if lines else "no reason is known"


def variables(given: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """Return the variables of ``NAME=VALUE`` texts and of names that are set here. Raises InputError."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(
                f"--env {text}: write it as NAME=VALUE; --env-from NAME takes the value from here."
            )
        found[name] = value
    for name in named:
        if name not in os.environ:
            raise InputError(
                f"--env-from {name}: there is no such environment variable here. Set "
                f"it, or give --env {name}=VALUE."
            )
        found[name] = os.environ[name]
    return found


def _show(submitted: Submission, info: JobInfo, as_json: bool) -> None:
    handle = submitted.handle
    if as_json:
        from engine.cli.output import show_json

        show_json(info.to_dict() | {"new": submitted.new, "address": handle.address})
        return
    if submitted.new:
        echo(f"{info.id}: submitted to {handle.address}")
        echo(f"  ships   {', '.join(submitted.shipped)}")
    else:
        echo(f"{info.id}: already {info.description}; nothing new is submitted")
    echo(f"  output  {submitted.output}")
    echo(f"  follow  rowsieve logs {info.id} -f --address {handle.address}")


def _wait(handle: JobHandle, output: TextIO) -> JobInfo:
    """Show the job's output until the job ends, and return its final record."""
    try:
        _print(handle, output)
    except RowsieveError as error:  # a broken connection does not end the job
        echo(f"the connection to its output was lost ({error}); waiting until the job ends", err=True)
    info = handle.wait()
    echo(f"{info.id}: {info.description}", err=True)
    return info


def _exit_as(info: JobInfo) -> None:
    if info.exit_code != Exit.DONE:
        raise typer.Exit(info.exit_code)


def _print(handle: JobHandle, output: TextIO) -> None:
    try:
        for piece in handle.follow():
            output.write(printable(piece, colours=True))
            output.flush()
    except KeyboardInterrupt:
        how = f"rowsieve cancel {handle.id} --address {handle.address}"
        echo(f"{handle.id} keeps running; to stop it: {how}", err=True)
        raise typer.Exit(INTERRUPTED) from None
