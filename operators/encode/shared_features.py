"""The bound on the 0/1 features of all columns of categories together.

``max_columns`` bounds the features of one column. A table of many columns with many categories each would
still give thousands of features, whose models take minutes and gigabytes. Columns for which the recipe gives
no number therefore share ``MAX_FEATURES``: every column keeps its ``OWN_FEATURES`` most frequent categories,
and beyond these the categories with the most rows are kept, of all columns. Of equal ones, that with the
better place in its own column comes first, then the earlier column. The choice depends on the numbers of rows
alone, which are exact, so that it is the same for any number of shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from connectors.foundation.messages import first_of
from operators.encode.sketches import Counts
from operators.yaml_text import inline_entry

MAX_FEATURES = 2000
"""Most 0/1 features of all columns of categories for which the recipe gives no number."""
OWN_FEATURES = 30
"""Features that each of these columns keeps in any case, as many as a column of lists has."""
LIMITED = "limited_columns"
"""Key of the state: the columns with fewer features than they would have alone. Missing without any."""
SHOWN = 5
"""Limited columns that a warning names."""


def shared_limits(counts: Mapping[str, Counts]) -> dict[str, int]:
    """Return the most features of each column that gets fewer than it would have alone.

    Parameters
    ----------
    counts : rows of the features of each column that shares, in the order of the columns.
    """
    if sum(map(len, counts.values())) <= MAX_FEATURES:
        return {}
    beyond = {name: np.sort(rows)[::-1][OWN_FEATURES:] for name, rows in counts.items()}
    free = max(MAX_FEATURES - sum(min(len(rows), OWN_FEATURES) for rows in counts.values()), 0)
    rows = np.concatenate(list(beyond.values()))
    columns = np.repeat(np.arange(len(beyond)), [len(one) for one in beyond.values()])
    places = np.concatenate([np.arange(len(one)) for one in beyond.values()])
    kept = columns[np.lexsort((columns, places, -rows))[:free]]
    won = np.bincount(kept, minlength=len(beyond)).tolist()
    return {
        name: OWN_FEATURES + n for (name, one), n in zip(beyond.items(), won, strict=True) if n < len(one)
    }


def limit_warning(limited: Mapping[str, Sequence[int]]) -> str:
    """Return a sentence about the columns with fewer features, with the remedy.

    Parameters
    ----------
    limited : features of each such column, and those that it would have alone; not empty.
    """
    changes = [f"{name} ({alone:,} -> {kept:,})" for name, (kept, alone) in limited.items()]
    name, (_, alone) = next(iter(limited.items()))
    remedy = inline_entry(name, {"max_columns": alone + 1})
    return (
        f"the columns of categories would give more than {MAX_FEATURES:,} features together, so that some "
        f"have fewer than alone, for their most frequent categories, and one for all others: "
        f"{first_of(changes, SHOWN)}. To keep those of a column: operators.encode.columns: `{remedy}`."
    )
