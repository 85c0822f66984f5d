"""``rowsieve versions`` and ``rowsieve diff``: a dataset's history and the difference of two versions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from engine.cli.common import AsJson, Verbose, print_errors
from engine.cli.safe_output import SafeConsole, bold, plain_table
from engine.core.errors import InputError
from operators.counts import count

if TYPE_CHECKING:
    from engine.runs.history import PruneResult

console = SafeConsole()


def versions(
    output: Annotated[str, typer.Argument(metavar="OUTPUT", help="Output folder of a recipe")],
    action: Annotated[str, typer.Argument(help="list, prune or remove")] = "list",
    version: Annotated[str, typer.Argument(help="remove: the version, withdrawn or not")] = "",
    keep: Annotated[int | None, typer.Option(min=1, help="prune: number of latest versions to keep")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="prune, remove: only say what would go")] = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List the published versions, or remove old ones or one together with their data in the run store."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.core.output_layout import output_of
        from engine.runs.history import history, prune, remove

        _check_words(action, version, keep)
        place = output_of(output)
        if action == "list":
            entries = history(place)
            show_json(entries) if as_json else _show_versions(entries)
            return
        done = (
            remove(place, version, dry_run=dry_run)
            if action == "remove"
            else prune(place, keep or 0, dry_run=dry_run)
        )
        show_json(vars(done)) if as_json else _show_pruned(done, dry_run=dry_run)


def _check_words(action: str, version: str, keep: int | None) -> None:
    """Raise InputError if the words of the command do not belong together."""
    words = f"rowsieve versions OUTPUT {action}"
    if action not in ("list", "prune", "remove"):
        raise InputError(f"{words}: write list, prune or remove.")
    if action == "remove" and not version:
        raise InputError(f"{words}: name the version, as `rowsieve versions OUTPUT` lists it.")
    if action != "remove" and version:
        raise InputError(f"{words} {version}: only `remove` takes a version.")
    if action == "prune" and keep is None:
        raise InputError(f"{words}: say how many versions stay, such as --keep 10.")
    if action != "prune" and keep is not None:
        raise InputError(f"{words} --keep {keep}: only `prune` takes --keep.")


def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="V1",
            help="Version, its folder, or OUTPUT@VERSION. Default: the one published before V2",
        ),
    ] = "",
    after: Annotated[
        str,
        typer.Argument(metavar="V2", help="Version, its folder, or OUTPUT@VERSION. Default: the current one"),
    ] = "",
    output: Annotated[str | None, typer.Option(help="Output folder that holds the versions")] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Change above which a weight counts as changed")
    ] = 0.01,
    key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Source column that names a row, such as an id; several times: together. Default: the place "
            "in unchanged files, else all source columns",
        ),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Write every row that is new, gone or changed to this Parquet file; its places in files "
            "count the rows that source.filter leaves"
        ),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the differences between two versions: new, removed and changed groups, and changed rows."""
    with print_errors(verbose):
        from engine.cli.output import show_json
        from engine.runs.diff import compare
        from engine.runs.row_changes import write_row_changes
        from engine.runs.row_pairs import RowPairs
        from engine.training.data.version import open_version

        then, now = (open_version(name) for name in _compared(before, after, output))
        with RowPairs(then, now, key or ()) as pairs:
            found = compare(pairs, tolerance=tolerance)
            if rows is not None:
                found["rows_written"] = write_row_changes(pairs, found, rows, tolerance=tolerance)
        if then.folder == now.folder and not as_json:
            console.print(
                f"{now.name} is compared with itself, so that nothing differs. `rowsieve diff --output "
                "OUTPUT` compares the current version with the one published before it.",
                soft_wrap=True,
            )
        show_json(found) if as_json else _show_diff(found)
        if rows is not None and not as_json:
            console.print(f"{count(found['rows_written'], 'row')} in {rows}", soft_wrap=True)


def _compared(before: str, after: str, output: str | None) -> tuple[str, str]:
    """Return both versions of a comparison, each as a folder or as OUTPUT@VERSION.

    Raises InputError if a version is left out or given by its name without an output, or there is none
    before the current one.
    """
    from engine.core.output_layout import output_of
    from engine.storage.manifest import NAME
    from engine.storage.withdrawals import current_version, nothing_current, version_before

    if output is None:
        if not after:
            raise InputError(
                f"{' '.join(['rowsieve diff', before]).strip()}: name two versions, or give --output OUTPUT: "
                "its current version is then compared with the one published before it."
            )
        for name in (before, after):
            if NAME.fullmatch(name) and not Path(name).exists():
                raise InputError(
                    f"{name} is not a folder here. If it is the name of a version, say of which output: "
                    f"--output OUTPUT, or OUTPUT@{name}."
                )
        return before, after
    place = output_of(output)
    after = after or current_version(place) or ""
    if not after:
        raise nothing_current(place, output)
    before = before or version_before(place, after)
    then, now = (f"{output}@{name}" if NAME.fullmatch(name) else name for name in (before, after))
    return then, now


def _show_versions(entries: list[dict[str, Any]]) -> None:
    from engine.core.terminal import when

    table = plain_table("version", "published", "rows", "groups", "base", "outcome", "models")
    for entry in entries:
        name = bold(entry["version"]) + " (current)" if entry["current"] else Text(entry["version"])
        outcome = entry["outcome"] + (f": {entry['why']}" if entry["why"] else "")
        if entry["outcome"] == "predict" and entry["fitted"]:
            again = (f"{operator} ({why})" for operator, why in entry["fitted"].items())
            outcome += f"; fitted again all the same: {', '.join(again)}"
        if entry["withdrawn"] is not None:
            outcome = f"withdrawn: {entry['withdrawn']}"
        models = ", ".join(entry["models"])
        at, rows = when(entry["published_at"]), f"{entry['rows']:,}"
        table.add_row(name, at, rows, str(entry["groups"]), entry["base"] or "", outcome, models)
    console.print(table)


def _show_pruned(done: PruneResult, *, dry_run: bool) -> None:
    verb = "would remove" if dry_run else "removed"
    names = f": {', '.join(done.versions)}" if done.versions else ""
    console.print(
        f"{verb} {count(len(done.versions), 'version')} and {count(len(done.fingerprints), 'folder')} of the "
        f"run store{names}",
        soft_wrap=True,
    )
    for name, why in done.kept_for.items():
        console.print(f"  {name} stays: {why}", soft_wrap=True)


def _show_diff(found: dict[str, Any]) -> None:
    rows = found["rows"]
    console.print(
        bold(found["before"]) + " -> " + bold(found["after"]) + f": {rows['before']:,} -> {rows['after']:,} "
        f"rows, {rows['common']:,} in common, {rows['gone']:,} gone, {rows['new']:,} new",
        soft_wrap=True,
    )
    console.print(_matched_text(found["matched"]), soft_wrap=True)
    groups = plain_table("group", "before", "after", "rows before", "rows after", "in common", "nearest")
    for entry in found["groups"]:
        then, now, nearest = (
            "" if entry[key] is None else str(entry[key]) for key in ("before", "after", "nearest")
        )
        counts = [f"{entry[key]:,}" for key in ("rows_before", "rows_after", "common")]
        groups.add_row(entry["change"], then, now, *counts, nearest)
    console.print(groups)
    changed = plain_table("rows with another", "rows", "for example")
    for kind, entry in found["changed"].items():
        if kind == "source" and not found["matched"]["key"]:
            continue  # rows without a key match by what they hold
        changed.add_row(kind, f"{entry['rows']:,}", "; ".join(map(_example, entry["examples"][:2])))
    console.print(changed)
    console.print(
        f"largest change of a weight: {found['largest_weight_change']:.4g} (tolerance {found['tolerance']:g})"
    )


def _matched_text(matched: dict[str, Any]) -> str:
    """Return by what the rows were matched, and what could not be told apart."""
    if matched["key"]:
        text = f"rows matched by the key {', '.join(matched['key'])}: {matched['by_key']:,}"
    else:
        columns = matched["content_columns"]
        text = f"rows matched by their place in unchanged files: {matched['by_position']:,}; by content "
        text += f"({count(len(columns), 'source column')} of both versions): {matched['by_content']:,}"
    for name, what in (("without_key", "have no key"), ("repeated", "repeat an earlier row's")):
        then, now = matched[name]
        if (then or now) and (matched["key"] or name == "repeated"):
            of = " key, and match in order" if matched["key"] else " content, and match in order"
            text += f"; {then:,} rows before and {now:,} after {what}{of if name == 'repeated' else ''}"
    return text


def _example(entry: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    place = entry["file"].rsplit("/", 1)[-1]
    if entry["key"] is not None:
        place = f"{entry['key']} in {place}"
    if entry["before"] is None:
        return f"{place} row {entry['row']}"
    return f"{place} row {entry['row']}: {text(entry['before'])} -> {text(entry['after'])}"
