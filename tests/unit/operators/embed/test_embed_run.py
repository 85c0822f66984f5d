"""Whole runs on text: faulty rows, reuse, and what planning refuses. The encoder is the tests' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
from engine.execution.quarantine import read_quarantine
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from engine.runs.runner import run
from tests.data import recipe_for, write_shards
from tests.unit.engine.runs.test_run import computed

EMPTY = 7


def text_table(n: int = 200) -> pa.Table:
    """Words whose length tells the class for most rows; row 7 has none."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    agrees = rng.random(n) < 0.85
    words = ["a" * (3 + 3 * int(long) + int(rng.integers(0, 2))) for long in (y == 1) == agrees]
    words[EMPTY] = ""
    labels, truth = np.where(y == 1, "yes", "no"), np.where(agrees, "major", "minor")
    return pa.table(
        {"word": words, "label": labels.tolist(), "other": labels[::-1].tolist(), "truth": truth.tolist()}
    )


def text_recipe(folder: Path, **sections: Any) -> Recipe:
    write_shards(folder / "data", text_table())
    mapping = recipe_for(folder / "data", folder / "out", **sections)
    embed = {
        "model": "tests.unit.operators.embed.test_embed:letters",
        "column": "word",
        "resources": {"gpus": 0},
    }
    mapping["operators"] = {"embed": embed, **mapping["operators"]}
    return Recipe.parse(mapping)


@pytest.mark.slow
def test_a_row_without_a_vector_is_set_aside_with_the_encoders_reason(tmp_path: Path) -> None:
    recipe = text_recipe(tmp_path, source={"on_error": "quarantine"})
    result = run(recipe)
    rows = pq.read_table(result.path / "data")
    assert rows["split"].to_pylist().count("dropped") == 1
    assert rows["split"][EMPTY].as_py() == "dropped"
    assert rows["word"].to_pylist() == text_table()["word"].to_pylist()
    (fault,) = read_quarantine(make_plan(recipe), 10).to_pylist()
    assert (fault["row_id"], fault["column"], fault["value"], fault["error"]) == (
        EMPTY,
        "word",
        "''",
        "is empty",
    )
    other = run(text_recipe(tmp_path, source={"on_error": "quarantine", "label": "other"}))
    assert computed(other)["embed"] == 0  # another label needs no new vectors
    assert computed(other)["ingest"] == 4


def test_neither_another_label_nor_another_draw_needs_new_vectors(tmp_path: Path) -> None:
    """`parts` draws by the label and by `split`; the encoder learns from no row."""
    plan = make_plan(text_recipe(tmp_path))
    assert plan.operators[0].name == "parts"
    for sections in ({"source": {"label": "other"}}, {"operators": {"split": {"validation": 0.3}}}):
        other = make_plan(text_recipe(tmp_path, **sections))
        same = {n.name for n in other.operators if n.fingerprint == plan.fingerprint_of(n.name)}
        assert same == {"embed"}


def test_or_the_run_fails_at_that_row_and_the_vectors_are_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"s0\.parquet.*row 7.*column 'word' is empty \(value: ''\)"):
        run(text_recipe(tmp_path))
    result = run(text_recipe(tmp_path, source={"on_error": "quarantine"}))
    assert computed(result)["embed"] == 0


@pytest.mark.parametrize(
    ("operators", "sections", "match"),
    [
        ({"column": "wrod"}, {}, r"operators\.embed: the source has no column 'wrod'\. Did you mean 'word'"),
        ({"column": "truth"}, {}, r"operators\.embed: 'truth' is named under `truth`, for scoring only"),
        ({}, {"source": {"features": ["word"]}}, r"source\.features: operators\.embed makes the features"),
        ({"model": "minilm_", "column": "word"}, {}, r"operators\.embed\.model: .* Did you mean 'minilm'"),
    ],
)
def test_planning_refuses(
    tmp_path: Path, operators: dict[str, Any], sections: dict[str, Any], match: str
) -> None:
    recipe = text_recipe(tmp_path, **sections)
    changed = {**recipe.operators, "embed": {**recipe.operators["embed"], **operators}}
    with pytest.raises(InputError, match=match):
        make_plan(recipe.model_copy(update={"operators": changed}))


def test_without_embed_the_features_are_those_of_encode(tmp_path: Path) -> None:
    recipe = text_recipe(tmp_path)
    operators = {name: params for name, params in recipe.operators.items() if name != "embed"}
    plan = make_plan(recipe.model_copy(update={"operators": operators}))
    assert [planned.name for planned in plan.operators][:3] == ["parts", "encode", "ingest"]
    assert "word" in plan.features


def test_what_reads_vectors_alone_waits_for_the_rows_that_are_taken(tmp_path: Path) -> None:
    recipe = text_recipe(tmp_path, operators={"dckm": {}, "decorrelation": {}})
    names = [planned.name for planned in make_plan(recipe).operators]
    assert names[:2] == ["embed", "ingest"]
    assert {"dckm", "decorrelation"} < set(names[2:])
