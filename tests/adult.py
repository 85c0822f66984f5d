"""A table like UCI Adult, made up: its columns, its way of writing them, and none of its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

COLUMNS = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hours_per_week,native_country,income"
)
SCHOOLS = ("9th", "HS-grad", "Some-college", "Bachelors", "Masters")
WORK = ("Private", "Self-emp", "Local-gov", "?")
JOBS = ("Sales", "Craft-repair", "Exec-managerial", "Other-service", "?")


def write_adult(path: Path, n_rows: int = 600, seed: int = 0) -> Path:
    """Write the rows as the published files have them: ``", "`` between cells, ``?`` for what is missing.

    The last fifth is written as the file of test rows is, with a full stop after the label.
    """
    rng = np.random.default_rng(seed)
    lines = [COLUMNS]
    for row in range(n_rows):
        school, married = int(rng.integers(0, len(SCHOOLS))), rng.random() < 0.5
        rich = rng.random() < 0.08 + 0.12 * school * married
        cells = [
            int(rng.integers(17, 90)),
            rng.choice(WORK, p=[0.7, 0.12, 0.12, 0.06]),
            int(rng.integers(12_285, 1_490_400)),
            SCHOOLS[school],
            5 + 2 * school,
            "Married-civ-spouse" if married else rng.choice(["Never-married", "Divorced"]),
            rng.choice(JOBS, p=[0.25, 0.25, 0.24, 0.2, 0.06]),
            "Husband" if married else "Not-in-family",
            rng.choice(["White", "Black", "Other"], p=[0.85, 0.1, 0.05]),
            rng.choice(["Male", "Female"], p=[0.67, 0.33]),
            int(rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 0, 7298 if rich else 594])),
            0,
            int(rng.integers(20, 60)),
            rng.choice(["United-States", "Mexico", "?"], p=[0.9, 0.08, 0.02]),
            (">50K" if rich else "<=50K") + ("." if row >= 0.8 * n_rows else ""),
        ]
        lines.append(", ".join(str(cell) for cell in cells))
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path
