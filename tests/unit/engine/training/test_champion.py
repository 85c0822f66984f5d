"""A champion that reads other columns, or knows other classes, than the rows of a newer version have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.recipe.promotion import CannotCompareError, PromotionRule
from engine.recipe.recipe import Recipe
from engine.recipe.trainers import parse_params
from engine.runs.runner import run
from engine.training.champion import PairedAnswers, PairedCell, count_paired_answers, rows_for
from engine.training.data.features import FeatureMaker
from engine.training.data.version import open_version
from engine.training.evaluation.split_scores import GroupFacts, score
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import FEATURES, TrainingJob, read_record
from engine.training.serving.pyfunc import write_served_model
from engine.training.training_run import TrainResult, TrainSpec, train
from operators.metrics.paired import PairedCounts, gain_p_value
from tests.data import recipe_for, spurious_table, write_shards

ERM = parse_params({"trainer": "erm"})


def trained(
    folder: Path, table: pa.Table, shards: int = 1, **source: Any
) -> tuple[TrainResult, TrainingJob, Path]:
    """Publish and train; returns the result, its job, and what its registered model would hold."""
    write_shards(folder / "data", table, shards)
    value = recipe_for(folder / "data", folder / "out", source=source)
    value["operators"] = {
        "encode": {"numeric": {"missing": "fail"}},
        "probe": {"trainer": "in_process"},
        "groups": {"method": "none"},
        "outliers": {},
        "weights": {"method": "uniform", "trust": "all"},
        "split": {"test": 0.3},
    }
    run(Recipe.parse(value))
    result = train(TrainSpec(folder / "out", ERM), LocalExecutor())
    maker = FeatureMaker(result.version.reader(), result.folder / FEATURES)
    write_served_model(result.model, result.version, maker, folder / "served")
    return result, TrainingJob(result.version, ERM, 0, result.folder), folder / "served"


def facts(job: TrainingJob) -> GroupFacts:
    """What the job's training has recorded about the groups."""
    return GroupFacts.of_record(read_record(job.folder), job.version)


def pure(n: int, seed: int) -> pa.Table:
    """Rows whose label follows column ``b`` without exception."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return pa.table(
        {
            "a": rng.normal(size=n),
            "b": y + rng.normal(0, 0.05, n),
            "label": np.where(y == 1, "yes", "no").tolist(),
            "truth": ["all"] * n,
        }
    )


def test_a_champion_of_fewer_columns_in_another_order_answers_through_its_own_features(
    tmp_path: Path,
) -> None:
    """Numbers of features alone would have refused the first and fed the second the wrong columns."""
    table = pure(400, 0)
    more = table.append_column("c", pa.array(np.zeros(400)))
    _, job, _ = trained(tmp_path / "new", more, features=["a", "b", "c"])
    for name, features in (("fewer", ["b"]), ("order", ["c", "b", "a"])):
        old, _, served = trained(tmp_path / name, more, features=features)
        source = rows_for(served, job)
        assert source is not None
        champion = Ensemble.load(served)
        found = score(
            job, champion, LocalExecutor(), facts(job), folder=served, splits=["test"], source=source
        )
        assert found["test"].accuracy == pytest.approx(1.0, abs=0.02)
        paired = count_paired_answers(
            job, job.folder, served, LocalExecutor(), facts(job), split="test", source=source
        )
        counts = paired.counts("inferred").together()
        assert counts.rows[0] == found["test"].rows
        assert counts.right_before[0] == round(found["test"].accuracy * found["test"].rows)
        assert old.evaluations["test"].accuracy == pytest.approx(1.0, abs=0.02)


def test_the_same_model_is_compared_on_the_features_that_are_there(tmp_path: Path) -> None:
    result, job, served = trained(tmp_path, spurious_table(400))
    assert rows_for(served, job) is None
    found = score(job, Ensemble.load(served), LocalExecutor(), facts(job), folder=served, splits=["test"])
    assert found["test"] == result.evaluations["test"]
    counts = count_paired_answers(
        job, result.folder, served, LocalExecutor(), facts(job), split="test"
    ).counts("inferred")
    assert counts.gained.sum() == counts.lost.sum() == 0


def test_classes_are_compared_by_name(tmp_path: Path) -> None:
    """A new label that sorts first shifts every class index by one."""
    table = pure(300, 1)
    _, _, served = trained(tmp_path / "old", table, features=["a", "b"])
    extra = pure(60, 2)
    extra = extra.set_column(1, "b", pa.array(np.full(60, -3.0)))
    extra = extra.set_column(2, "label", pa.array(["maybe"] * 60))
    result, job, _ = trained(tmp_path / "new", pa.concat_tables([table, extra]), features=["a", "b"])
    source = rows_for(served, job)
    found = score(
        job, Ensemble.load(served), LocalExecutor(), facts(job), folder=served, splits=["test"], source=source
    )
    shares = {row.group: row.accuracy for row in found["test"].groupings["inferred"].groups}
    by_class = sorted(shares.values())
    assert by_class[0] == 0.0  # it does not know the class
    assert by_class[1] >= 0.98
    assert found["test"].balanced_accuracy == pytest.approx(np.mean(by_class), abs=0.02)
    rule = PromotionRule.parse("worst_group_accuracy > champion and accuracy > champion with confidence 0.95")
    paired = count_paired_answers(
        job, result.folder, served, LocalExecutor(), facts(job), split="test", source=source
    )
    mine = result.evaluations["test"].metrics()
    assert rule.evaluate(mine, found["test"].metrics(), paired)[0]


def test_a_champion_whose_column_is_gone_says_so(tmp_path: Path) -> None:
    table = pure(200, 3)
    _, _, served = trained(tmp_path / "old", table, features=["a", "b"])
    _, job, _ = trained(tmp_path / "new", table.drop_columns(["a"]))
    with pytest.raises(CannotCompareError, match=r"column 'a', which version v.* does not publish"):
        rows_for(served, job)


@pytest.mark.parametrize("names", [{"no": "0", "yes": "1"}, {"no": 0, "yes": 1}], ids=["text", "type"])
def test_a_champion_of_classes_with_other_names_says_so(tmp_path: Path, names: dict[str, Any]) -> None:
    """All its answers counted as wrong, so that any challenger replaced it."""
    table = pure(200, 3)
    _, _, served = trained(tmp_path / "old", table, features=["a", "b"])
    labels = pa.array([names[value] for value in table["label"].to_pylist()])
    renamed = table.set_column(table.column_names.index("label"), "label", labels)
    _, job, _ = trained(tmp_path / "new", renamed, features=["a", "b"])
    with pytest.raises(CannotCompareError, match=r"\['no', 'yes'\], and version v.* has none of them, but "):
        rows_for(served, job)


def test_rows_that_the_champion_cannot_read_are_wrong_answers(tmp_path: Path) -> None:
    """The challenger dropped column ``a``, which has holes now."""
    table = pure(300, 4)
    _, _, served = trained(tmp_path / "old", table, features=["a", "b"])
    holes = np.where(np.arange(300) % 10 == 0, None, table["a"].to_numpy())
    _, job, _ = trained(
        tmp_path / "new", table.set_column(0, "a", pa.array(holes, pa.float64())), features=["b"]
    )
    source = rows_for(served, job)
    found = score(
        job, Ensemble.load(served), LocalExecutor(), facts(job), folder=served, splits=["test"], source=source
    )
    version = open_version(tmp_path / "new" / "out")
    rows = pq.read_table(version.folder / "data").to_pandas()
    missing = rows.loc[rows["split"] == "test", "a"].isna().mean()
    assert missing > 0
    assert found["test"].accuracy == pytest.approx(1 - missing, abs=0.02)
    assert found["test"].balanced_accuracy == pytest.approx(1 - missing, abs=0.05)
    assert found["test"].auprc == pytest.approx(1 - missing / 2, abs=0.05)


def test_new_shards_alone_score_the_champion(tmp_path: Path) -> None:
    """Rows of old shards, on which it was trained, hide what is new: here every new label is flipped."""
    table = pure(600, 0)
    labels = table["label"].to_pylist()
    swapped = [{"yes": "no", "no": "yes"}[v] if n >= 300 else v for n, v in enumerate(labels)]
    changed = table.set_column(table.column_names.index("label"), "label", pa.array(swapped))
    _, _, served = trained(tmp_path / "old", table, features=["a", "b"])
    _, job, _ = trained(tmp_path / "new", changed, 2, features=["a", "b"])
    champion = Ensemble.load(served)
    assert len(job.version.manifest["parts"]) == 2
    for first, splits, expected in ((0, "validation", 0.5), (1, "train+validation", 0.0)):
        found = score(
            job, champion, LocalExecutor(), facts(job), folder=served, splits=[splits], first_shard=first
        )
        assert found[splits].accuracy == pytest.approx(expected, abs=0.12)
    assert found["train+validation"].rows > 200


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accuracy > champion with confidence 2", "give a confidence from 0.5 to below 1"),
        ("accuracy > 0.8 with confidence 0.9", "above the champion"),
        ("accuracy < champion with confidence 0.9", "above the champion"),
        ("ece > champion with confidence 0.9", "known for accuracy and worst_group_accuracy"),
        ("accuracy > champion and", "write METRIC"),
        ("accuracy > 1.5", r"never holds, as accuracy has values from 0 to 1\."),
        ("truth_worst_group_accuracy_low >= 1.01", "never holds"),
        ("accuracy > champion and ece < 0", "ece < 0.*never holds"),
        ("log_loss < -0.1", r"never holds, as log_loss has values of at least 0\."),
        ("accuracy > champion + 1", "never holds, as accuracy has differences of two models from -1 to 1"),
        ("accuracy > champion; ece < 1", "write METRIC"),
        ("cvar_0.1 > champion", 'is better the smaller it is.*"cvar_0.1 < champion"'),
        ("log_loss_cvar_0.1 >= champion + 1", "is better the smaller it is"),
        ("worst_group_loss_high > champion", "is better the smaller it is"),
        ("worst_group_accuracy_low < champion", "is better the larger it is"),
        ("log_loss_cvar_0.1 < -1", "never holds, as log_loss_cvar_0.1 has values of at least 0"),
        ("r2 > 2", "never holds, as r2 has values of at most 1"),
        ("cvar_... > 0.1", "there is no metric 'cvar_...'"),
        ("rmse < champion with confidence 0.9", "compare rmse without one"),
    ],
)
def test_rules_that_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PromotionRule.parse(text)


def test_the_test_names_groups_that_it_does_not_compare() -> None:
    """Rows of a group that is in no comparison count for the accuracy all the same."""
    cells = {0: PairedCell(80, 60, 9, 1), 1: PairedCell(12, 2, 10, 0)}
    paired = PairedAnswers({"inferred": cells})
    worst = paired("worst_group_accuracy", 0.0, 0.95).text
    said = "group 0: of 80 rows the champion has 60 right and the challenger 68, 9 gained and 1 lost"
    assert f"p = 0.0107 by McNemar's exact test, one-sided, in {said}" in worst
    assert worst.endswith(
        "; group 1 (12 rows, 2 right by the champion and 12 by the challenger) is left out of the worst "
        "group, as it has fewer than 50 scored rows; a larger validation or test split has more of them"
    )
    whole = paired("accuracy", 0.0, 0.95).text
    assert "in all rows: of 92 rows the champion has 62 right and the challenger 80, 19 gained" in whole
    assert "comparison" not in whole


COUNTS = re.compile(
    r"of (\d+) rows the champion has (\d+) right and the challenger \d+, (\d+) gained and (\d+) lost"
)


def test_the_reason_has_the_counts_of_every_group_that_give_its_p() -> None:
    """Six gained and four lost in all, of which the worst group has all that was gained."""
    cells = {0: PairedCell(60, 30, 6, 0), 1: PairedCell(300, 280, 0, 4), -1: PairedCell(70, 68, 0, 0)}
    text = PairedAnswers({"inferred": cells})("worst_group_accuracy", 0.0, 0.95).text
    found = [tuple(map(int, match)) for match in COUNTS.findall(text)]
    assert found == [(60, 30, 6, 0), (300, 280, 0, 4), (70, 68, 0, 0)]
    p = gain_p_value(PairedCounts(*np.array(found).T))
    test = "by an intersection-union test of the worst group's gain, one-sided, in 3 groups"
    assert text.startswith(f"p = {p:.4f} {test}")
    assert "(group 0, the worst of the champion and the challenger: of 60 rows" in text
    assert "; rows without a group, class 0: of 70 rows" in text
    bound = PairedAnswers({"inferred": cells})("worst_group_accuracy", 0.01, 0.95).text
    p = gain_p_value(PairedCounts(*np.array(found).T), 0.01)
    test = "by an intersection-union test of the worst group's gain above +0.01, one-sided, in 3 groups"
    assert bound.startswith(f"p = {p:.4f} {test} (group 0,")
    whole = PairedAnswers({"inferred": cells})("accuracy", -0.005, 0.95).text
    assert "by Tango's score test of the gain above -0.005, one-sided, in all rows: of 430 rows" in whole
    many = dict.fromkeys(range(9), PairedCell(60, 30, 6, 0))
    assert "; and 4 more)" in PairedAnswers({"true": many})("true_worst_group_accuracy", 0.0, 0.95).text
    few = {0: PairedCell(20, 10, 6, 0), 1: PairedCell(20, 10, 1, 0)}
    assert (
        "in all groups together: of 40 rows"
        in PairedAnswers({"inferred": few})("worst_group_accuracy", 0.0, 0.95).text
    )


def test_a_group_of_wrong_labels_is_in_no_comparison() -> None:
    cells = {0: PairedCell(300, 240, 40, 2), 1: PairedCell(200, 160, 0, 90)}
    assert not PairedAnswers({"inferred": cells})("worst_group_accuracy", 0.0, 0.95).holds
    found = PairedAnswers({"inferred": cells}, {1: 0.95})("worst_group_accuracy", 0.0, 0.95)
    assert found.holds
    assert found.text.endswith("group 1 is left out of the worst group")
    whole = PairedAnswers({"inferred": cells}, {1: 0.95})("accuracy", 0.0, 0.95).text
    assert "of 500 rows" in whole
    true = PairedAnswers({"inferred": cells, "true": cells}, {1: 0.95})
    assert not true("true_worst_group_accuracy", 0.0, 0.95).holds
    most = PairedAnswers({"inferred": cells}, {1: 0.66})("worst_group_accuracy", 0.0, 0.95)
    assert not most.holds, "the other groups follow the shortcut, and reward a model that leans on it"
    everything = PairedAnswers({"inferred": cells}, {0: 0.95, 1: 0.95})
    assert not everything("worst_group_accuracy", 0.0, 0.95).holds, "it was a bare ValueError"


@pytest.mark.parametrize(
    "text",
    [
        "accuracy >= 1",
        "accuracy > champion + 0.5",
        "loss < champion - 2",
        "r2 > -3",
        "cvar_0.1 <= 0",
        "log_loss_cvar_0.1 > 4",
        "worst_group_loss_high < 3",
        "accuracy > -1",
    ],
)
def test_rules_at_the_ends_of_a_metric(text: str) -> None:
    PromotionRule.parse(text)


def test_all_clauses_must_hold() -> None:
    rule = PromotionRule.parse("worst_group_accuracy > champion and accuracy > champion - .005")
    old = {"worst_group_accuracy": 0.6, "accuracy": 0.9}
    assert rule.evaluate({"worst_group_accuracy": 0.7, "accuracy": 0.896}, old)[0]
    assert not rule.evaluate({"worst_group_accuracy": 0.7, "accuracy": 0.894}, old)[0]
    assert not rule.evaluate({"worst_group_accuracy": 0.6, "accuracy": 0.95}, old)[0]
    assert rule.evaluate({"worst_group_accuracy": 0.1, "accuracy": 0.1}, None)[0]
