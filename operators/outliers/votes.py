"""Rules that turn the marks of several operators into one verdict for each row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from operators.arrays import Mask

Text = npt.NDArray[np.object_]

ALL, ANY = "all", "any"
BETWEEN = "+"
"""Mark between the reasons in ``marked_by``."""


def decide(marks: Mapping[str, Mask], rule: str = ALL) -> Mask:
    """Return whether each row is marked as corrupt.

    GRASP's noise is often the smaller minority, and a row far from the others can be rare rather than wrong,
    so that one voter alone is weak evidence: by default all must agree.

    Parameters
    ----------
    marks : voter -> (n,) rows it marks; at least one voter.
    rule : ``all`` or ``any`` of the voters, or the name of the one that decides alone.

    Returns
    -------
    (n,) bool

    Raises
    ------
    KeyError : the rule names no voter.
    """
    if rule not in (ALL, ANY):
        return marks[rule]
    together = np.stack(list(marks.values()))
    return np.asarray(together.all(axis=0) if rule == ALL else together.any(axis=0))


def join_reasons(reasons: Mapping[str, Text]) -> Text:
    """Return the reasons (n,) of all voters that mark a row, as ``grasp:noise+eos``; empty for none.

    Parameters
    ----------
    reasons : voter -> (n,) its reason, empty where it does not mark the row.
    """
    return np.array(
        [BETWEEN.join(filter(None, row)) for row in zip(*reasons.values(), strict=True)], np.object_
    )
