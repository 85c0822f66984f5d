"""Worst group of models that other libraries train on the published weights, beside no weights.

``python -m tests.paper.trainers`` runs the examples of ``engine/training/TRAINERS.md`` as they stand, and
``rowsieve retrain``, on generated tables with a shortcut. True groups, class x value of the cue, are seen by
the scores alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq

import rowsieve
from tests.paper.real.flow import rowsieve as command

PAGE = Path(__file__).resolve().parents[2] / "engine" / "training" / "TRAINERS.md"
Predict = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.int64]]


def examples() -> dict[str, str]:
    """Return the code of each section of the page that has any; the first has an empty title."""
    found = {}
    for section in PAGE.read_text("utf-8").split("\n## "):
        title = "" if section.startswith("# ") else section.partition("\n")[0]
        found[title] = "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    return {title: code for title, code in found.items() if code}


def trained(title: str, names: dict[str, Any]) -> Predict:
    """Carry out the example of a section with the names of the first one; return its ``predict``."""
    given = dict(names)
    exec(examples()[title], given)
    predict: Predict = given["predict"]
    return predict


def cue_table(rows: int, seed: int, *, test: bool = False) -> pd.DataFrame:
    """Return rows with eight weak honest columns and a cue of two values that is right in 93 % of them.

    Among test rows it is right in half of them.
    """
    rng = np.random.default_rng([seed, test])
    label = rng.integers(0, 2, rows)
    cue = np.where(rng.random(rows) < (0.5 if test else 0.93), label, 1 - label)
    honest = rng.normal(size=(rows, 8))
    honest[:, :4] += 0.55 * (2 * label[:, None] - 1)
    frame = pd.DataFrame(honest, columns=[f"f{k}" for k in range(8)])
    named = {"shade": np.array(["dark", "light"])[cue], "churned": np.array(["no", "yes"])[label]}
    return frame.assign(**named)


def publish(folder: Path, seed: int, rows: int = 4000) -> rowsieve.PublishedVersion:
    """Curate a table with the defaults and open the version, which lies in ``curated/churn``."""
    out = folder / "curated" / "churn"
    rowsieve.curate(cue_table(rows, seed), label="churned", output=str(out))
    return rowsieve.open(out)


def scores(predict: Predict, version: rowsieve.PublishedVersion, seed: int) -> tuple[float, float]:
    """Return the accuracy in the worst true group and over all of 4,000 fresh rows."""
    rows = cue_table(4000, seed, test=True)
    X = version.features(rows)
    classes = np.array(version.for_sklearn("train").classes)
    right = classes[predict(X)] == rows.churned.to_numpy()
    return float(right_by_group(right, rows).min()), float(right.mean())


def right_by_group(right: npt.NDArray[np.bool_], rows: pd.DataFrame) -> pd.Series[float]:
    """Return the accuracy of each class x value of the cue."""
    return pd.Series(right).groupby([rows.churned, rows["shade"]]).mean()


@contextmanager
def equal_weights() -> Iterator[None]:
    """Give every row the weight 1 while the block runs."""
    from rowsieve.training_rows import SplitReader, TrainingRows

    plain = SplitReader.read

    def read(self: SplitReader, part: int) -> TrainingRows:
        rows = plain(self, part)
        return replace(rows, sample_weight=np.ones(len(rows)))

    with patch.object(SplitReader, "read", read):
        yield


def row(title: str, version: rowsieve.PublishedVersion, seed: int) -> str:
    """Return a line of the table: worst / mean accuracy without and with the weights."""
    cells = []
    for context in (equal_weights(), nullcontext()):
        with context:
            names: dict[str, Any] = {}
            exec(examples()[""], names)
            worst, mean = scores(trained(title, names), version, seed)
        cells.append(f"{worst:.3f} / {mean:.3f}")
    return f"| {title} | {seed} | {' | '.join(cells)} |"


def own_row(folder: Path, seed: int) -> str:
    """Return the same line for ``rowsieve retrain``, through the commands of a user."""
    rows, cells, output = cue_table(4000, seed, test=True), [], str(folder / "curated" / "churn")
    rows.to_csv(folder / "fresh.csv", index=False)
    for name in ("erm_plain", "erm"):
        given = ("--dataset", output, "--trainer", name, "--register", name, "--executor", "local")
        command("retrain", *given)
        kept = ("--keep", "churned", "--keep", "shade", "--tracking", output, "--executor", "local")
        command("predict", f"models:/{name}/1", str(folder / "fresh.csv"), str(folder / name), *kept)
        found = pq.read_table(sorted((folder / name).glob("*.parquet"))).to_pandas()
        right = (found.prediction == found.churned).to_numpy()
        cells.append(f"{right_by_group(right, found).min():.3f} / {right.mean():.3f}")
    return f"| `rowsieve retrain --trainer erm` | {seed} | {' | '.join(cells)} |"


def main(seeds: list[int], titles: list[str]) -> None:
    """Print a line for each seed and example."""
    for seed in seeds:
        with TemporaryDirectory() as folder, chdir(folder):
            version = publish(Path(folder), seed)
            print(own_row(Path(folder), seed), flush=True)
            for title in titles:
                print(row(title, version, seed), flush=True)


if __name__ == "__main__":
    wanted = [title for title in examples() if title and title != "Ray Train"]
    main([int(seed) for seed in sys.argv[1:]] or [0], wanted)
