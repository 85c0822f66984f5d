"""Publication of a data frame with the label ``label``, for tests of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import rowsieve


def publish(
    frame: pd.DataFrame, folder: Path, operators: dict[str, Any], shards: int = 1, **sections: Any
) -> Path:
    """Run a recipe over a frame in so many shards, and return its output folder.

    ``sections`` are sections of the recipe that differ.
    """
    (folder / "data").mkdir(parents=True)
    for index, rows in enumerate(np.array_split(np.arange(len(frame)), shards)):
        frame.iloc[rows].to_parquet(folder / "data" / f"{index}.parquet", index=False)
    recipe = {
        "name": "published",
        "source": {"path": str(folder / "data"), "label": "label"},
        "operators": operators,
        "output": {"path": str(folder / "out")},
        "run": {"executor": "local"},
        "report": {"enabled": False},
        "tracking": {"enabled": False},
        **sections,
    }
    rowsieve.run(rowsieve.Recipe.parse(recipe))
    return folder / "out"
