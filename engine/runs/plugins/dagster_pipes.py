"""Report of a run to Dagster by its Pipes protocol, where Dagster has started the process.

Dagster gives the process two variables, ``DAGSTER_PIPES_CONTEXT`` and ``DAGSTER_PIPES_MESSAGES``. The package
``dagster-pipes`` (extra ``dagster``) reads them; it has no dependencies and does not need Dagster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from engine.core.errors import InputError, one_line
from engine.core.events import Event
from engine.core.output_layout import version_folder
from engine.runs.plugins.base import Publication, RunContext, RunPlugin

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

CONTEXT = "DAGSTER_PIPES_CONTEXT"
CHECKS = "checks"
"""Entry of Pipes' ``extras`` that names the checks to report."""
MOST_GROUPS = 100
"""Groups whose sizes are reported, the largest first."""


class DagsterPipes(RunPlugin):
    """Reports the version as a materialisation of the asset, and drift and promotion as asset checks.

    It does nothing where the process was not started by Dagster. Dagster refuses results of checks that the
    asset does not declare, so only those are reported that ``extras={"checks": [...]}`` names.
    """

    name: ClassVar[str] = "dagster_pipes"

    def __init__(self) -> None:
        self._context: PipesContext | None = None
        self._is_asked = False
        """Whether it was decided if there is a connection."""
        self._is_own = False
        self._error: BaseException | None = None

    def planned(self, run: RunContext) -> None:
        """Open the connection, unless operators have run before the plan was final."""
        self._open()

    def operator_finished(self, run: RunContext, event: Event) -> None:
        """Log an operator that has nothing left to do."""
        self._open()
        if self._context is not None and event.operator in {one.name for one in run.plan.operators}:
            verb = "reused" if event.kind == "reused" else f"done in {event.seconds:.1f} s"
            self._context.log.info(f"{event.operator}: {verb}, {event.rows:,} rows")

    def failed(self, run: RunContext, error: BaseException) -> None:
        """Keep why the run ends."""
        self._error = error

    def closed(self, run: RunContext) -> None:
        """Report the version, if there is one, and close the connection."""
        self._open()
        if self._context is None:
            return
        try:
            one_asset = self._context.is_asset_step and len(self._context.asset_keys) == 1
            if run.version is not None and one_asset:
                self._report(self._context, run, run.version)
        finally:
            if self._is_own:
                self._context.close(_exception(self._error))

    def _open(self) -> None:
        """Open the connection, or use the one that the process has opened already."""
        if self._is_asked or CONTEXT not in os.environ:
            return
        self._is_asked = True
        try:
            from dagster_pipes import PipesContext, open_dagster_pipes
        except ImportError:
            raise InputError(
                f"{CONTEXT} is set, so that Dagster waits for a report, and the package dagster-pipes is not "
                "installed here: pip install 'rowsieve[dagster]'"
            ) from None
        is_open = PipesContext.is_initialized()
        if is_open and PipesContext.get().is_closed:
            return  # an earlier run of this process has made the report that Dagster waits for
        self._is_own = not is_open
        self._context = open_dagster_pipes()

    def _report(self, context: PipesContext, run: RunContext, version: Publication) -> None:
        context.report_asset_materialization(metadata(run, version), data_version=run.plan.version)
        asked_for = context.extras.get(CHECKS, ())
        for name, (passed, values) in checks(version).items():
            if name in asked_for:
                context.report_asset_check(name, passed, severity="WARN", metadata=values)


def metadata(run: RunContext, version: Publication) -> dict[str, Any]:
    """Return what Dagster shows of a version. ``dagster/...`` are names that its pages know."""
    manifest = version.manifest
    sizes = {name: rows for name, rows in manifest["summary"]["groups"].items() if name != "-1"}
    largest = sorted(sizes.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST_GROUPS]
    found: dict[str, Any] = {
        "dagster/row_count": manifest["rows"],
        "dagster/uri": str(version_folder(run.plan.output, run.plan.version)),
        "version": run.plan.version,
        "groups": len(sizes),
        "rows_by_group": {"type": "json", "raw_value": dict(largest)},
        "outliers": manifest["summary"]["outliers"],
        "quarantined": manifest["summary"]["quarantined"],
    }
    if version.report is not None:
        found["report"] = {"type": "path", "raw_value": str(version.report)}
    if run.mlflow_run_id is not None:
        found["mlflow_run_id"] = run.mlflow_run_id
    if increment := manifest.get("incremental"):
        why = increment.get("why", "there are no new rows")
        found |= {"base": increment["base"], "decision": f"{increment['outcome']}: {why}"}
    return found


def checks(version: Publication) -> dict[str, tuple[bool, dict[str, Any]]]:
    """Return whether each check holds, with its figures. A check that had nothing to look at holds."""
    increment = version.manifest.get("incremental") or {}
    promoted = (version.training or {}).get("promoted")
    verdict: Mapping[str, Any] = promoted or {"promoted": True, "reason": "no rule was applied"}
    return {
        "drift": _drift(increment.get("drift", ())),
        "promotion": (bool(verdict["promoted"]), {"reason": str(verdict["reason"])}),
    }


def _drift(figures: Sequence[Mapping[str, Any]]) -> tuple[bool, dict[str, Any]]:
    """Return whether every figure is within its threshold, and for each its excess and threshold."""
    if not figures:
        return True, {"reason": "no rows are new, or there is no base version"}
    shown = {
        figure["name"]: {
            "type": "json",
            "raw_value": {key: figure.get(key) for key in ("excess", "threshold", "p")},
        }
        for figure in figures
    }
    return not any(figure["over"] for figure in figures), shown


def _exception(error: BaseException | None) -> Any:
    """Return Pipes' form of an error, without a trace, which could hold secrets."""
    if error is None:
        return None
    message = one_line(error) if isinstance(error, Exception) else type(error).__name__
    return {"message": message, "stack": [], "name": type(error).__name__, "cause": None, "context": None}
