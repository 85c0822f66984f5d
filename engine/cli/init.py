"""``rowsieve init``: writes a commented recipe for a dataset, after a look at its rows."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.safe_output import echo
from engine.core.errors import Exit, InputError
from engine.core.pandas_import import keep_pandas_out
from operators.counts import count

if TYPE_CHECKING:
    from engine.plan.first_recipe import Draft


def init(
    path: Annotated[str, typer.Argument(metavar="PATH", help="File, folder, glob or URI of the rows")],
    label: Annotated[str | None, typer.Option(help="Column with the class of each row")] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="File to write; default: standard output"),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(help="Folder of the versions; default: curated/NAME, outside of the data's folder"),
    ] = None,
    format: Annotated[str, typer.Option(help="Format, as `rowsieve sources` lists them")] = "auto",
    shards: Annotated[int, typer.Option(min=1, help="Most shards to sample")] = 8,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Look at a dataset and write a commented recipe for it. The label is never guessed."""
    with print_errors(verbose):
        keep_pandas_out()
        if out is not None:
            _check_file(out, force=force)
        if label is None:
            _list_candidates(path, format, shards)
            raise typer.Exit(Exit.BAD_INPUT)
        from engine.plan.first_recipe import draft, recipe_name
        from engine.plan.output_place import default_output
        from engine.plan.recipe_text import recipe_yaml
        from engine.recipe.recipe import SourceSection

        source = SourceSection.model_construct(path=path, label=label, format=format)
        output = output or default_output(source, recipe_name(path))
        found = draft(path, label, output=output, format=format, shards=shards)
        command = shlex.join(["rowsieve", "init", path, "--label", label])
        text = recipe_yaml(found, command, str(out) if out else f"{found.name}.yaml")
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(text, "utf-8")
        if as_json:
            from engine.cli.output import show_json

            show_json(_record(found, out, text))
            return
        if out is None:
            echo(text, nl=False)
        _show_findings(found, out)


def _check_file(out: Path, *, force: bool) -> None:
    """Raise InputError for a file that exists, unless it is to be replaced, and for a place that has none."""
    if out.is_dir():
        raise InputError(
            f"-o {out}: this is a folder. Name the file to write, such as {out / 'recipe.yaml'}."
        )
    lowest = next((folder for folder in out.absolute().parents if folder.exists()), out)
    if not lowest.is_dir():
        raise InputError(f"-o {out}: {lowest} is a file, not a folder. Name another place.")
    if out.exists() and not force:
        raise InputError(f"{out} exists. Choose another name with -o, or replace it with --force.")


def _record(found: Draft, out: Path | None, text: str) -> dict[str, Any]:
    columns = found.preview.columns
    return {
        "file": str(out) if out else None,
        "recipe": text,
        "rows": found.plan.n_rows,
        "columns": len(columns),
        "used": sum(column.use.used for column in columns),
        "cpu_seconds": round(found.estimate.seconds, 1),
        "likely_leaks": [asdict(leak) for leak in found.leaks],
        "warnings": _warnings(found),
    }


def _warnings(found: Draft) -> list[str]:
    findings = (finding.text for finding in found.preview.findings)
    return [
        *found.warnings,
        *findings,
        *found.preview.unread_texts,
        *found.preview.marks,
        *found.preview.names,
        *found.preview.numbers,
        *found.preview.values,
        *found.preview.cut,
        *found.preview.doubtful_uses,
    ]


def _show_findings(found: Draft, out: Path | None) -> None:
    """Print on standard error what was found in the rows."""
    used = sum(column.use.used for column in found.preview.columns)
    echo(
        f"{out or 'recipe'}: {count(found.plan.n_rows, 'row')}, "
        f"{count(len(found.preview.columns), 'column')}, {used} of them used as features; "
        f"a run takes {found.estimate.text}.",
        err=True,
    )
    for leak in found.leaks:
        echo(
            f"likely leak: {leak.name} alone is right on {leak.score:.1%} of unseen rows (classes "
            f"balanced; {leak.chance:.0%} by chance). It is excluded.",
            err=True,
        )
    for text in _warnings(found):
        echo(f"warning: {text}", err=True)


def _list_candidates(path: str, format: str, shards: int) -> None:
    """Print on standard error which columns could be the label."""
    from engine.cli.columns import aligned
    from engine.plan.first_label import candidates

    found = candidates(path, format, shards)
    echo("error: --label is missing, and Rowsieve does not guess it.", err=True)
    if not found:
        echo("No column has few values that repeat: name the column with the class of each row.", err=True)
        return
    echo(
        "Columns with few values, which could be the label, with their values in the sampled rows:\n",
        err=True,
    )
    rows = []
    for candidate in found:
        values = candidate.counts.sorted
        shown = ", ".join(f"{value!s} ({n:,})" for value, n in values[:4]) + (
            ", ..." if len(values) > 4 else ""
        )
        missing = candidate.counts.missing
        shown += f"; none in {count(missing, 'row')}" if missing else ""
        rows.append((f"  {candidate.name}", count(len(values), "value"), shown))
    for line in aligned(rows):
        echo(line, err=True)
