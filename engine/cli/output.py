"""Output of the commands: tables and trees for a terminal, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from engine.cli.safe_output import SafeConsole, bold, plain_table
from engine.core.redaction import redact
from engine.core.terminal import json_text, when
from operators.counts import count

if TYPE_CHECKING:
    import pyarrow as pa

    from connectors.storage import Place
    from engine.plan.model import Plan
    from engine.publish.results import RunResult
    from operators.base import Operator

MAX_SHARDS = 20
console = SafeConsole()


def show_json(value: Any) -> None:
    """Print JSON on standard output."""
    print(json_text(value, indent=2))


def show_plan(plan: Plan, text_seconds: float = 0.0) -> None:
    """Print the shards, operators and the published schema of a plan.

    ``text_seconds``: CPU seconds of the network that reads free text.
    """
    from engine.plan.estimate import network_text
    from engine.plan.executor_choice import choose_executor

    size = sum(shard.n_bytes for shard in plan.listing.shards)
    console.print(
        bold(plan.recipe.name)
        + f": {count(plan.n_rows, 'row')}, {size / 2**20:,.1f} MiB in "
        + f"{count(len(plan.shards), 'shard')} -> version "
        + bold(plan.version)
    )
    shards = plain_table("shard", "rows", "row_id", "file", "range")
    for source, info in list(zip(plan.listing.shards, plan.shards, strict=True))[:MAX_SHARDS]:
        last = info.first_row + info.n_rows - 1
        place = f"{source.start}..{source.stop}"
        shards.add_row(
            str(info.index),
            f"{info.n_rows:,}",
            f"{info.first_row}..{last}",
            redact(source.path),
            place,
        )
    console.print(shards)
    if len(plan.shards) > MAX_SHARDS:
        console.print(f"... and {len(plan.shards) - MAX_SHARDS} more (--json shows all)", style="dim")
    choice = choose_executor(plan)
    where = "in this process" if choice.kind == "local" else "on Ray"
    beside = f"; {network_text(text_seconds, 'free text')}" if text_seconds else ""
    console.print(f"  runs {where}: {choice.reason}{beside}", soft_wrap=True)
    console.print(f"  {plan.learnt_from}", soft_wrap=True)
    if plan.increment:
        show_increment(plan.increment.record(), undecided=plan.increment.undecided)
    chain = plain_table("operator", "reads", "adds", "committed", "fingerprint")
    for planned in plan.operators:
        reads = (*planned.operator.requires, *planned.operator.source_columns, *planned.operator.uses)
        reads += tuple(f"{column} (oracle)" for column in planned.operator.oracle_columns)
        adds = ", ".join(f"{field.name}: {type_name(field.type)}" for field in planned.operator.adds)
        done = f"{len(plan.store.committed(planned.fingerprint))}/{len(plan.shards)}"
        chain.add_row(planned.name, ", ".join(dict.fromkeys(reads)), adds, done, planned.fingerprint[:12])
    console.print(chain)
    columns = plain_table("published column", "type")
    for field in plan.published_schema:
        columns.add_row(field.name, type_name(field.type))
    console.print(columns)


def show_increment(record: Mapping[str, Any], *, undecided: bool = False) -> None:
    """Print the base version of a run, and why operators were fitted again or not."""
    from engine.plan.decisions import describe, describe_base

    decision = "decided once the new rows are placed" if undecided else describe(record)
    console.print(f"  {describe_base(record)}", soft_wrap=True)
    console.print(f"  {decision}", soft_wrap=True)


def show_refusal(version: str, why: str) -> None:
    """Print that a run is refused, since it would publish again what was withdrawn."""
    told = f" a run is refused: {version} has the same rows, operators and seed, and was withdrawn: {why}"
    console.print(Text.assemble(("warning", "yellow"), told), soft_wrap=True)


def show_status(found: dict[str, Any]) -> None:
    """Print the state of a run and the committed shards of each operator."""
    state = (
        "published, current" if found["current"] else "published" if found["published"] else "not published"
    )
    own = found["withdrawn_as"] == found["version"]
    state += f", withdrawn: {found['withdrawn']}" if own else ""
    console.print(Text("version ") + bold(found["version"]) + f": {state}", soft_wrap=True)
    if found["withdrawn"] and not own:
        show_refusal(found["withdrawn_as"], found["withdrawn"])
    for name, why in found["withdrawn_bases"].items():
        told = f" it continues from {name}, which was withdrawn: {why}"
        console.print(Text.assemble(("warning", "yellow"), told), soft_wrap=True)
    if found["running"]:
        step = found["step"] or {"operator": "starting", "kind": ""}
        console.print(f"running: {found['writer']}; {step['operator']} {_step_text(step)}", soft_wrap=True)
    elif found["died"]:
        silent = found["silent_seconds"]
        console.print(
            bold("not running") + f": the last run sent no heartbeat for {silent:.0f} s; run it again"
        )
    if found["last_error"]:
        error = found["last_error"]
        console.print(f"last error ({when(error['at'])}): {error['error']}", soft_wrap=True)
    for step in found["unfinished_steps"]:
        failed = step["status"] == "failed"
        what = f"failed: {step['error'].rstrip('.')}." if failed else "was interrupted."
        console.print(
            bold(f"{step['name']} {what}") + " Run the same command again to repeat it.", soft_wrap=True
        )
    for export in found["dropped_exports"]:
        console.print(
            bold("an earlier export failed") + " and the recipe no longer names its table: "
            f"{export['error']}",
            soft_wrap=True,
        )
    for line in found["warnings"]:
        console.print(Text.assemble(("warning", "yellow"), f" {line}"), soft_wrap=True)
    table = plain_table(
        "operator", "fitted", "shards", "rows", "quarantined", "worker seconds", "rows/s", "left"
    )
    for row in found["operators"]:
        rate, eta = row["rate"], row["eta_seconds"]
        table.add_row(
            row["operator"],
            "yes" if row["fitted"] else "no",
            f"{row['committed']}/{row['total']}",
            f"{row['rows']:,}",
            str(row["quarantined"] + row["skipped"]),
            f"{row['seconds']:.1f}",
            f"{rate:,.0f}" if rate else "",
            f"{eta:,.0f} s" if eta else "",
        )
    console.print(table)


def _step_text(step: dict[str, Any]) -> str:
    """Describe the latest event; for a fit, with its pass over the data."""
    if step["kind"] != "fit" or not step.get("fit_pass"):
        return str(step["kind"])
    return f"fit, pass {step['fit_pass']}: {step['pieces']} of {step['total_pieces']}"


def show_operators() -> None:
    """Print a table of all operators with their parameters and defaults."""
    from operators.registry import operator_class, operator_names

    table = plain_table("operator", "what it does", "parameters (defaults)")
    for name in operator_names():
        if name == "ingest":
            continue
        kind = operator_class(name)
        _add_operator(table, name, kind)
        for method, variant in kind.variants().items():
            _add_operator(table, f"  method: {method}", variant)
    console.print(table)


def _add_operator(table: Table, name: str, kind: type[Operator[Any]]) -> None:
    from engine.recipe.reference import default_text

    fields = kind.Params.model_fields.items()
    chosen = name.strip().partition(": ")[0]
    params = [f"{key}={default_text(field)}" for key, field in fields if key != chosen]
    table.add_row(name, (kind.__doc__ or "").strip().split("\n")[0], ", ".join(params))


def type_name(kind: pa.DataType) -> str:
    """Return an Arrow type as one word where it has one."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return "category"
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"list[{type_name(kind.value_type)}]"
    return str(kind)


def show_quarantine(rows: pa.Table) -> None:
    """Print the quarantined rows with their reasons."""
    if rows.num_rows == 0:
        console.print("No row is in quarantine.")
        return
    table = plain_table("row_id", "file", "row", "column", "value", "error")
    for row in rows.to_pylist():
        cells = (row["row_id"], row["file"], row["row"], row["column"], row["value"], row["error"])
        table.add_row(*map(str, cells))
    console.print(table)


def show_lineage(found: dict[str, Any]) -> None:
    """Print a version with its MLflow runs, models and source files as a tree."""
    shown = f"{found['folder']} ({count(found['rows'], 'row')})"
    tree = Tree(Text("version ") + bold(found["version"]) + f" {shown}")
    if found["withdrawn"] is not None:
        tree.add(bold("withdrawn") + f": {found['withdrawn']}")
    if not found["runs"]:
        tree.add("no MLflow run is recorded for it")
    for run in found["runs"]:
        described = f"{run['status']} {when(run['started_ms'] / 1000)}"
        branch = tree.add(Text("run ") + bold(run["run_id"]) + f" {described}")
        for entry in run["inputs"]:
            branch.add(f"input {entry['name']} digest {entry['digest']}")
    for model in found["models"]:
        rest = f"{', champion' if model['champion'] else ''} run {model['run_id']}"
        tree.add(Text("model ") + bold(f"{model['name']} {model['version']}") + rest)
    if found["base"]:
        tree.add(f"continues from version {found['base']}")
    source = tree.add(f"source {found['source']['path']}")
    for path, identity in found["source"]["files"].items():
        source.add(f"{path} {identity[:19]}")
    console.print(tree)
    console.print(f"MLflow: {found['tracking_uri']}", style="dim")


def show_result(result: RunResult, *, as_json: bool) -> None:
    """Print the outcome of a run: the version, and what was computed, exported and trained."""
    summary = result_record(result)
    if as_json:
        print(json.dumps(summary), flush=True)
        return
    shown = Text.assemble((result.version, "bold green"), f" {_work_text(result)}, {result.seconds:.1f} s")
    console.print(shown, soft_wrap=True)
    oracle = " (oracle: the truth, not inferred)" if summary["oracle"] else ""
    console.print(
        f"  {count(summary['rows'], 'row')}, {count(summary['groups'], 'group')}{oracle}, "
        f"{count(summary['outliers'], 'outlier')}"
        + (f", {summary['quarantined']:,} quarantined" if summary["quarantined"] else "")
    )
    for export in result.exports:
        verb = "is" if export.written else "was already"
        console.print(f"  {verb} {export.state} of {export.path} ({export.format})", soft_wrap=True)
    if increment := result.manifest.get("incremental"):
        show_increment(increment)
    for line in (*unread_columns(result.manifest), *result.manifest.get("warnings", ())):
        console.print(Text.assemble("  ", ("warning", "yellow"), f" {line}"), soft_wrap=True)
    console.print(f"  data    {short_path(result.path)}", soft_wrap=True)
    if result.training:
        from engine.runs.training_record import describe_training

        console.print(f"  train   {describe_training(result.training)}", soft_wrap=True)
    if result.report:
        console.print(f"  report  {short_path(result.report)}", soft_wrap=True)
    if result.mlflow_run_id:
        console.print(f"  mlflow  run {result.mlflow_run_id}", soft_wrap=True)


def result_record(result: RunResult) -> dict[str, Any]:
    """Return the outcome of a run as JSON-able values."""
    groups = result.manifest["summary"]["groups"]
    return {
        "event": "published",
        "version": result.version,
        "path": short_path(result.path),
        "already_published": result.reused,
        "rows": result.manifest["rows"],
        "groups": len([group for group in groups if group != "-1"]),
        "outliers": result.manifest["summary"]["outliers"],
        "quarantined": result.manifest["summary"]["quarantined"],
        "oracle": any("oracle" in operator.metrics for operator in result.operators),
        "report": short_path(result.report) if result.report else None,
        "mlflow_run_id": result.mlflow_run_id,
        "incremental": result.manifest.get("incremental"),
        "unread": result.manifest["source"].get("unread", {}),
        "training": result.training,
        "exports": [asdict(export) for export in result.exports],
        "parts_taken_over": result.parts_taken_over,
        "likely_leaks": [asdict(leak) for leak in result.leaks],
        "warnings": result.manifest.get("warnings", []),
        "seconds": round(result.seconds, 1),
    }


def _work_text(result: RunResult) -> str:
    """Return how much of the work was computed and how much was reused."""
    computed = sum(operator.computed for operator in result.operators)
    reused = sum(operator.reused for operator in result.operators)
    text = f"{count(computed, 'operator shard')} computed, {reused:,} reused"
    if computed == 0 and result.reused:
        text = "already published: every shard reused, nothing computed"
    if result.parts_taken_over:
        text += f", {result.parts_taken_over} of {count(len(result.manifest['parts']), 'part')} as they were"
    return text


def unread_columns(manifest: Mapping[str, Any]) -> list[str]:
    """Return a warning for each source column that the version lacks because the plan did not see it."""
    files: dict[str, list[str]] = {}
    for path, names in manifest["source"].get("unread", {}).items():
        for name in names:
            files.setdefault(name, []).append(path)
    return [
        f"{paths[0]}: the column {name!r} is not read"
        + (f" (nor from {count(len(paths) - 1, 'more file')})" if len(paths) > 1 else "")
        + ": no shard has it in its first rows. Raise source.options.head_bytes, or name the wanted columns "
        "in source.columns."
        for name, paths in sorted(files.items())
    ]


def short_path(path: Place) -> str:
    """Return a path below the working directory relative to it, and any other path as it is."""
    is_below = isinstance(path, Path) and path.is_relative_to(Path.cwd())
    return str(path).removeprefix(f"{Path.cwd()}/") if is_below else str(path)
