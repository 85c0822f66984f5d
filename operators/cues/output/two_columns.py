"""Two columns that say nearly the same of the rows, so that no measurement tells which one is a shortcut.

Where a second column mirrors the one on which models lean, as an insurance case mirrors an accident, the
other columns seem to speak against a shortcut: one of them tells the exceptions too. The list of suspects
shows it: the slices of both have about the same share of the rows, and models fail on the same classes there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from operators.cues.named.recipe_text import yaml_reference
from operators.cues.output.shown_suspects import is_entry

SHUT_BY_MIRRORS = ("slice_support", "agreement")
"""Measurements that a second column of this kind makes low."""
LEAST_STRENGTH = 0.5
"""Strength of the second column, relative to the first."""
MAX_DIFFERENCE = 0.05
"""Difference of the shares of the rows that two slices hold, or one slice and the rest of the other."""
MIN_CLASSES = 2
"""Classes with rows in and outside of both slices."""
LEAST_COSINE = 0.9
"""Likeness of what two slices do to the accuracy of each class."""

Suspect = Mapping[str, Any]


def two_columns_text(found: Mapping[str, Any]) -> str:
    """Say that a second column says nearly the same as the leading one, as a clause; empty if none does.

    Parameters
    ----------
    found
        The content of ``suspects.json``.

    """
    suspects = [one for one in found["suspects"] if one["answer"] == "open" and not is_entry(one)]
    if found["weakest"] not in SHUT_BY_MIRRORS or len(suspects) < 2:
        return ""
    first, *others = suspects
    names = [yaml_reference(one["reference"]) for one in others if _is_mirror(first, one)]
    own = yaml_reference(first["reference"])
    name = next((name for name in names if name != own), "")
    return name and (
        f"`{name}` says nearly the same of the rows as `{own}`, so that the data cannot tell which of them, "
        "if any, is the shortcut"
    )


def _is_mirror(first: Suspect, other: Suspect) -> bool:
    """Return whether another slice, or the rest of the rows, is much like that of the first."""
    if other["strength"] < LEAST_STRENGTH * first["strength"]:
        return False
    effects = _effect(first), _effect(other)
    known = ~np.isnan(effects[0] + effects[1])
    if known.sum() < MIN_CLASSES:
        return False
    one, two = (effect[known] for effect in effects)
    cosine = float(one @ two) / max(float(np.linalg.norm(one) * np.linalg.norm(two)), 1e-9)
    share = other["share"] if cosine > 0 else 1 - other["share"]
    return bool(abs(cosine) >= LEAST_COSINE and abs(share - first["share"]) <= MAX_DIFFERENCE)


def _effect(suspect: Suspect) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the accuracy inside less that outside of a slice, by class; NaN where one is not known."""
    inside, outside = suspect["accuracy_inside"], suspect["accuracy_outside"]
    values = [[np.nan if one[name] is None else one[name] for one in (inside, outside)] for name in inside]
    table = np.array(values, np.float64)
    return table[:, 0] - table[:, 1]
