"""Digest of everything that a report depends on, so that an unchanged report is not drawn again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from engine.core.digests import digest
from engine.core.software_versions import package_versions
from engine.plan.model import Plan
from engine.report.times import operator_times

FORMAT = 5
"""Raise it when the page of an unchanged version has to be drawn again."""
SECTIONS = {"name", "seed", "source", "truth", "operators", "output", "report"}
"""Sections of the recipe on which the page depends."""


def report_digest(
    plan: Plan,
    manifest: Mapping[str, Any],
    metrics: Mapping[str, Mapping[str, float]],
    descriptions: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """Compute the digest of a report's inputs.

    The published bytes are represented by the manifest and the operators' fingerprints, the source by the
    identities of its files.
    """
    return digest(
        {
            "format": FORMAT,
            "software": package_versions(),
            "plan": [plan.version, plan.fingerprint],
            "operators": [[planned.name, planned.fingerprint] for planned in plan.operators],
            "recipe": plan.recipe.model_dump(mode="json", include=SECTIONS),
            "files": dict(plan.listing.identities),
            "manifest": manifest,
            "metrics": metrics,
            "descriptions": descriptions,
            "warnings": list(warnings),
            "times": [astuple(row) for row in operator_times(plan)],
        }
    )
