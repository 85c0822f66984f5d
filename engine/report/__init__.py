"""The report of one version: a single HTML file that needs nothing else to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.storage import Place
    from engine.plan.model import Plan
    from operators.base import Executor


def write_report(
    plan: Plan,
    manifest: dict[str, Any],
    metrics: dict[str, dict[str, float]],
    path: Place,
    executor: Executor | None = None,
) -> Place:
    """Write the report of a published version to ``path`` and return it.

    Workers count each shard's rows and choose from them; the driver holds sums of counts and a bounded
    sample. The same plan gives the same pictures. What only the report needs (an image column, fields,
    truth) never ends a run: the report says in its place what is wrong.

    Parameters
    ----------
    plan : the plan whose operators have all been committed.
    manifest : the version's manifest, see ``engine.publish.publisher``.
    metrics : operator name -> metric -> value, listed as they are.
    path : the file to write; its folder is made if absent.
    executor : where shards are counted; default: here.
    """
    from engine.core.json_files import write_text
    from engine.core.redaction import redact
    from engine.execution.local_executor import LocalExecutor
    from engine.report.page import render

    write_text(path, redact(render(plan, manifest, metrics, executor or LocalExecutor())))
    return path
