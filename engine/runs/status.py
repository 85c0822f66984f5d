"""The status of a plan's run, read from files only: while it goes on, and after it has ended or died."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from engine.core.output_layout import version_folder
from engine.plan.model import Plan, PlannedOperator
from engine.runs.plugins.journal import ERROR, PROGRESS, read_journal
from engine.runs.run_record import dropped_exports, read_record, unfinished_steps
from engine.storage.lease import has_active_writer, read_holder, seconds_since_heartbeat
from engine.storage.manifest import is_published, read_manifest
from engine.storage.withdrawals import current_version, withdrawal_against, withdrawn_bases


def status_of(plan: Plan) -> dict[str, Any]:
    """Return whether the version is published, who writes, and how far each operator is.

    Returns
    -------
    JSON-able. For each operator, ``rate`` is in rows per second between its first and last commit since the
    last writer started, null if this writer has made fewer than two commits; ``eta_seconds`` is the time
    for the rest at that rate, while a run goes on. ``unfinished_steps`` are the steps after publishing that
    failed or were interrupted. ``withdrawn`` is the reason of a withdrawal, ``withdrawn_as`` the version that
    was withdrawn: this one, or one of the same rows and recipe, so that a run is refused (newer
    methods of operators do not make another recipe); and
    ``withdrawn_bases`` has those of versions that this one continues from. ``dropped_exports`` are exports
    that failed and that the recipe no longer names. ``warnings`` are those of the operators that are fitted.
    ``last_error`` is null where the last run has died without one: what is recorded is of an earlier run.

    """
    output = plan.output
    published = is_published(output, plan.version)
    refusal = withdrawal_against(output, plan.version, plan.inputs, plan.store.replays())
    withdrawn = refusal.withdrawal if refusal else None
    increment = {"incremental": plan.increment.record()} if plan.increment else {}
    folder = version_folder(output, plan.version)
    bases = withdrawn_bases(output, read_manifest(folder) if published else increment)
    running, holder = has_active_writer(output), read_holder(output)
    asked_for = [(table.format, table.path) for table in plan.recipe.output.export]
    since = datetime.fromisoformat(holder.since).timestamp() if holder else math.inf
    died = bool(holder and not holder.released and not running)
    error = read_journal(output, ERROR, plan.version)
    return {
        "version": plan.version,
        "published": published,
        "current": current_version(output) == plan.version,
        "withdrawn": withdrawn.why if withdrawn else None,
        "withdrawn_as": withdrawn.version if withdrawn else None,
        "withdrawn_bases": bases,
        "running": running,
        "writer": str(holder) if holder and running else None,
        "died": died,
        "silent_seconds": seconds_since_heartbeat(output) if holder and not holder.released else None,
        "step": read_journal(output, PROGRESS, plan.version),
        "last_error": None if died and error and error["at"] < since else error,
        "unfinished_steps": [] if running else unfinished_steps(output, plan.version),
        "dropped_exports": dropped_exports(read_record(output, plan.version), asked_for),
        "warnings": plan.warnings(),
        "operators": [_operator(plan, planned, since, running) for planned in plan.operators],
    }


def _operator(plan: Plan, planned: PlannedOperator, since: float, running: bool) -> dict[str, Any]:
    commits = plan.store.committed(planned.fingerprint)
    times = plan.store.commit_times(planned.fingerprint, commits)
    rows = sum(commit.rows for commit in commits.values())
    rate = rate_of([(times[shard], commit.rows) for shard, commit in commits.items()], since)
    left = plan.n_rows - rows
    return {
        "operator": planned.name,
        "fingerprint": planned.fingerprint,
        "fitted": plan.store.fitted(planned.fingerprint) is not None,
        "committed": len(commits),
        "total": len(plan.shards),
        "rows": rows,
        "quarantined": sum(commit.quarantined for commit in commits.values()),
        "skipped": sum(commit.skipped for commit in commits.values()),
        "seconds": sum(commit.seconds for commit in commits.values()),
        "rate": rate,
        "eta_seconds": left / rate if running and rate else None,
    }


def rate_of(commits: list[tuple[float, int]], since: float) -> float | None:
    """Return the rows per second of the commits from ``since`` on; None if there are fewer than two.

    Commits are given as (time in seconds, rows). The rows of the first one were computed before its time and
    do not count, nor do commits of earlier runs, between which time passed without work.
    """
    recent = sorted(commit for commit in commits if commit[0] >= since)
    if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
        return None
    return sum(rows for _, rows in recent[1:]) / (recent[-1][0] - recent[0][0])
