"""How far a plan's run is, read from commit records alone."""

from __future__ import annotations

from typing import Any

from engine.plan import Plan
from engine.publish import POINTER, is_published


def status_of(plan: Plan) -> dict[str, Any]:
    """Committed and total shards of each operator, and whether the version is published and current."""
    output = plan.output
    pointer = output / POINTER
    rows = []
    for planned in plan.operators:
        commits = plan.store.committed(planned.fingerprint)
        rows.append(
            {
                "operator": planned.name,
                "fingerprint": planned.fingerprint,
                "fitted": plan.store.fitted(planned.fingerprint) is not None,
                "committed": len(commits),
                "total": len(plan.shards),
                "rows": sum(commit.rows for commit in commits.values()),
                "quarantined": sum(commit.quarantined for commit in commits.values()),
                "seconds": sum(commit.seconds for commit in commits.values()),
            }
        )
    return {
        "version": plan.version,
        "published": is_published(output, plan.version),
        "current": pointer.read_text("utf-8").strip() == plan.version if pointer.exists() else False,
        "operators": rows,
    }
