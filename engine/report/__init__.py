"""The report of one version: a single HTML file that needs no other file.

Operators contribute sections through :meth:`operators.base.Operator.report_section`; this package knows the
published columns and no operator by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.storage import Place
    from engine.plan.model import Plan
    from operators.base import Executor

__all__ = ["write_report"]

MAX_MARK = 200
"""Largest file of a digest, in bytes."""


def write_report(
    plan: Plan,
    manifest: dict[str, Any],
    metrics: dict[str, dict[str, float]],
    path: Place,
    executor: Executor | None = None,
    descriptions: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> Place:
    """Write the report of a published version to ``path``, unless it is there and up to date.

    Workers count each shard's rows and choose some of them; the driver holds counts and a bounded sample. The
    same plan gives the same page. What only the report needs (an image column, fields, truth) never ends a
    run: the report says in its place what is wrong.

    Parameters
    ----------
    plan
        The plan, all of whose operators have been committed.
    manifest
        The version's manifest, see ``engine.publish.publisher``.
    metrics
        Operator name to metric to value.
    path
        The file to write, below the plan's output; its folder is created if it does not exist. A
        digest of everything that the page depends on is kept in ``<name>.digest`` in the same folder.
    executor
        Where shards are counted; default: in this process.
    descriptions
        The groups in words, see ``engine.runs.descriptions``; without them the page has none.
    warnings
        Sentences about the source, for the head of the page.

    Returns
    -------
    ``path``.
    """
    from engine.core.json_files import write_text
    from engine.core.redaction import redact
    from engine.report.digest import report_digest

    mark, digest = path.with_suffix(".digest"), report_digest(plan, manifest, metrics, descriptions, warnings)
    if path.exists() and _marked(mark, plan.output) == digest:
        return path
    from engine.execution.local_executor import LocalExecutor
    from engine.report.page import render
    from operators.report.figures import own_style

    with own_style():
        page = render(plan, manifest, metrics, executor or LocalExecutor(), descriptions, warnings)
    write_text(path, redact(page), root=plan.output)
    write_text(mark, digest + "\n", root=plan.output)
    return path


def _marked(mark: Place, output: Place) -> str:
    """Return the digest that a page was made for; empty where the file is none of ours."""
    from connectors.base import ConnectorError
    from connectors.storage import read_whole

    try:
        return read_whole(mark, root=output, max_bytes=MAX_MARK).decode("ascii").strip()
    except (OSError, ConnectorError, UnicodeDecodeError):
        return ""
