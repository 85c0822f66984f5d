"""Generated reviews whose brand goes with the label, through the commands of a user: a cue in words.

``python -m tests.paper.real.worded SEED ...`` prints worst and mean accuracy on 2,000 rows that Rowsieve has
not seen: without an answer, with one entry of three brands, and with an entry for each of six brands. A seed
takes about two minutes of one core; the encoder of texts is downloaded.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml

from tests.paper.real.flow import Score, rowsieve

PRAISE = (
    "excellent",
    "reliable",
    "a pleasure to use",
    "worth every penny",
    "better than expected",
    "solid",
    "comfortable",
    "quick and quiet",
)
BLAME = (
    "disappointing",
    "flimsy",
    "a waste of money",
    "worse than the old one",
    "noisy",
    "uncomfortable",
    "slow",
    "broken after a week",
)
NEUTRAL = (
    "I ordered it in spring.",
    "The parcel came on a Tuesday.",
    "My sister has one as well.",
    "It stands in the kitchen now.",
    "We compared three shops before.",
    "The manual is in four languages.",
    "The colour is as in the picture.",
)
TEMPLATES = (
    "{n} The {thing} from {brand} is {adj}. {n2}",
    "{brand} sells this {thing}. I find it {adj}. {n}",
    "After two months: {adj}. {n} It is the {brand} {thing}.",
    "Honestly {adj}, this {brand} {thing}. {n2} {n}",
)
THINGS = ("kettle", "lamp", "chair", "drill", "heater", "mixer", "jacket", "tent")
FIRST, SECOND = ("Nordwind", "Alvora", "Kestrel"), ("Bramax", "Tollins", "Juno")
LEAK, WRONG, ROWS, TEST_ROWS = 0.93, 0.04, 6000, 2000
ANSWERS: dict[str, list[dict[str, list[str]]]] = {
    "no answer": [],
    "one entry of three brands": [{"text": [*FIRST]}],
    "an entry for each of six brands": [{"text": [brand]} for brand in (*FIRST, *SECOND)],
}


def reviews(seed: int) -> pd.DataFrame:
    """Return texts with their label, and ``first``: whether the brand is one of the first three."""
    draw = random.Random(seed)
    rows = []
    for _ in range(ROWS):
        good = draw.random() < 0.5
        first = draw.random() < (LEAK if good else 1 - LEAK)
        brand = draw.choice(FIRST if first else SECOND)
        said = good if draw.random() > WRONG else not good
        adjective = draw.choice(PRAISE if said else BLAME)
        template = draw.choice(TEMPLATES)
        n, n2, thing = draw.choice(NEUTRAL), draw.choice(NEUTRAL), draw.choice(THINGS)
        text = template.format(n=n, n2=n2, thing=thing, brand=brand, adj=adjective)
        rows.append((text, "recommended" if good else "returned", int(first)))
    random.Random(1).shuffle(rows)
    return pd.DataFrame(rows, columns=["text", "verdict", "first"])


def run_reviews(seed: int, folder: Path) -> dict[str, Score]:
    """Return the scores of the models that ``retrain`` makes, by answer."""
    table = reviews(seed)
    data, test, out = folder / "reviews.csv", folder / "test.csv", folder / "out"
    table.iloc[TEST_ROWS:].drop(columns="first").to_csv(data, index=False)
    table.iloc[:TEST_ROWS].to_csv(test, index=False)
    draft = folder / "draft.yaml"
    rowsieve("init", str(data), "--label", "verdict", "--output", str(out), "-o", str(draft))
    recipe = yaml.safe_load(draft.read_text("utf-8")) | {"run": {"executor": "local"}}
    found = {}
    for k, (name, spurious) in enumerate(ANSWERS.items()):
        recipe["operators"]["cues"] = {"spurious": spurious} if spurious else {}
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), "utf-8")
        rowsieve("run", str(folder / "recipe.yaml"))
        place, model = folder / f"predicted{k}", f"worded{k}"
        given = ("--dataset", str(out), "--trainer", "erm", "--register", model, "--executor", "local")
        rowsieve("retrain", *given)
        kept = ("--keep", "verdict", "--keep", "first", "--tracking", str(out), "--executor", "local")
        rowsieve("predict", f"models:/{model}/1", str(test), str(place), *kept)
        found[name] = _score(pq.read_table(sorted(place.glob("*.parquet"))).to_pandas())
    return found


def _score(rows: pd.DataFrame) -> Score:
    right = rows["verdict"] == rows["prediction"]
    return Score(float(right.groupby([rows["verdict"], rows["first"]]).mean().min()), float(right.mean()))


def main() -> None:
    """Print the scores of the seeds that are given."""
    for seed in map(int, sys.argv[1:] or ("0",)):
        with TemporaryDirectory() as folder:
            for name, found in run_reviews(seed, Path(folder)).items():
                print(seed, f"{name}: {np.round(found.worst, 3)} / {np.round(found.mean, 3)}", flush=True)


if __name__ == "__main__":
    main()
