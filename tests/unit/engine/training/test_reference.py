"""Class-balanced ERM beside a trained model: the same rows, a bounded price, and it can be left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine.cli.retrain import REFERENCE, group_table
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.recipe.incremental import TrainSection
from engine.recipe.trainers import parse_params, trainer_of
from engine.training import reference
from engine.training.page import write_page
from engine.training.reference import check_kind, reference_params
from engine.training.retrain import RetrainOptions, RetrainResult, retrain
from engine.training.training_run import TrainSpec

OPERATORS: dict[str, Any] = {
    "cues": {},
    "groups": {"method": "cues"},
    "weights": {},
    "split": {"validation": 0.3},
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    y = rng.random(900) < 0.2
    features = rng.normal(size=(900, 3)) + 1.2 * y[:, None]
    table = pd.DataFrame(features, columns=["a", "b", "c"])
    return table.assign(label=np.where(y, "rare", "often"))


def trained(out: Path, values: dict[str, Any], **options: Any) -> RetrainResult:
    spec = TrainSpec(str(out), parse_params(values))
    return retrain(spec, LocalExecutor(), RetrainOptions(**options))


@pytest.mark.parametrize("kind", ["auto", "same"])
def test_the_reference_is_scored_on_the_same_rows(published: Path, kind: str) -> None:
    found = trained(published, {"trainer": "erm_plain", "model": "mlp", "epochs": 2}, reference=kind)
    beside = found.reference
    assert beside is not None
    mine, theirs = (
        one.groupings["inferred"] for one in (found.result.evaluations["validation"], evaluation(found))
    )
    assert [group.rows for group in mine.groups] == [group.rows for group in theirs.groups]
    model = "logistic" if kind == "auto" else "mlp"
    alone = trained(
        published,
        {"trainer": "erm_class_balanced", "model": model, **({"epochs": 2} if kind == "same" else {})},
    )
    assert beside.model == model
    assert beside.scores == alone.result.scores
    assert alone.result.reused
    shown = beside.to_dict()
    assert (shown["trainer"], shown["reason"]) == ("erm_class_balanced", None)
    assert "reference.validation.accuracy" in beside.metrics()
    page = (found.result.folder / "report.html").read_text("utf-8")
    assert "<th>class-balanced ERM</th>" in page
    assert beside.sentence("validation") in page


def evaluation(found: RetrainResult) -> Any:
    assert found.reference is not None
    return found.reference.scores["validation"]


def test_it_finds_the_rare_class(published: Path) -> None:
    """The reason for the row: accuracy alone makes plain ERM look good."""
    found = trained(published, {"trainer": "erm_plain"})
    plain = found.result.evaluations["validation"]
    assert plain.accuracy is not None
    assert evaluation(found).balanced_accuracy > (plain.balanced_accuracy or 0) + 0.05


def test_it_can_be_left_out(published: Path) -> None:
    found = trained(published, {"trainer": "erm_plain", "model": "mlp", "epochs": 1}, reference="none")
    assert found.reference is None
    assert found.to_dict()["reference"] is None
    assert "class-balanced ERM" not in (found.result.folder / "report.html").read_text("utf-8")
    with pytest.raises(InputError, match=r"--reference samee: give auto .*Did you mean 'same'"):
        check_kind("samee", "--reference")
    with pytest.raises(ValueError, match="'auto', 'same' or 'none'"):
        TrainSection.model_validate({"reference": "samee"})


def test_the_price_is_bounded(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MAX_ROWS", 100)
    found = trained(published, {"trainer": "erm_plain"})
    assert found.reference is not None
    assert "more than 100; ask for it by `same`" in found.reference.reason
    assert found.reference.sentence("validation").startswith("No reference by class-balanced ERM: 6")


def test_the_page_shows_a_group_that_only_the_train_rows_have(published: Path) -> None:
    found = trained(published, {"trainer": "erm_plain", "model": "mlp", "epochs": 1})
    evaluation = found.result.evaluations["validation"]
    table = evaluation.groupings["inferred"]
    alone = replace(table.groups[0], group="rows without a group, class 1", rows=0)
    wrong = {table.groups[0].group: 0.95, table.groups[1].group: 0.2}
    marked = replace(table, groups=(*table.groups, alone), wrong_labels=wrong)
    groupings = {**evaluation.groupings, "inferred": marked}
    scores: dict[str, Any] = {**found.result.scores, "validation": replace(evaluation, groupings=groupings)}
    path = write_page(replace(found.result, scores=scores), reference=found.reference)
    page = path.read_text("utf-8")
    assert page.count('<span class="tag">wrong labels</span>') == 1, "where nearly all labels are wrong"
    row = next(line for line in page.splitlines() if "class 1</td>" in line)
    assert "no rows here" in row
    assert "<td>–</td>" in row


def test_class_balanced_erm_is_its_own_reference(published: Path) -> None:
    found = trained(published, {"trainer": "erm_class_balanced"})
    assert found.reference is not None
    assert found.reference.reason == "the trained model is class-balanced ERM itself"


def test_a_reference_that_fails_ends_no_training(published: Path) -> None:
    values = {"trainer": "erm_plain", "model": "mlp", "epochs": 1, "lr": 1e-3}
    spec = TrainSpec(str(published), parse_params(values))

    def fails(*_: Any) -> Any:
        raise InputError("another training holds its folder")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "train", fails)
        found = retrain(spec, LocalExecutor())
    assert found.reference is not None
    assert "another training" in found.reference.sentence("validation")


def test_its_parameters() -> None:
    of_gdro = parse_params(
        {"trainer": "gdro", "step_size": 0.1, "epochs": 3, "model": "mlp", "keep": "best", "noise": "drop"}
    )
    auto, same = reference_params(of_gdro, "auto"), reference_params(of_gdro, "same")
    assert (auto.model, auto.noise, auto.uses_lbfgs) == ("logistic", "drop", True)
    assert (same.model, same.epochs, same.keep, trainer_of(same)) == ("mlp", 3, "last", "erm_class_balanced")
    forest = parse_params({"trainer": "jtt", "model": "sklearn:RandomForestClassifier"})
    assert reference_params(forest, "same").is_estimator
    numbers = parse_params({"trainer": "gdro", "objective": "squared", "target": "price", "model": "mlp"})
    assert reference_params(numbers, "auto").uses_least_squares


def test_tables_have_a_column_for_it(published: Path) -> None:
    found = trained(published, {"trainer": "erm_plain"})
    assert found.reference is not None
    table = found.result.evaluations["validation"].groupings["inferred"]
    beside = found.reference.by_group("validation", "inferred")
    headings = [column.header for column in group_table(table, beside).columns]
    assert headings[-2:] == [REFERENCE, "train rows"]
    assert REFERENCE not in [column.header for column in group_table(table).columns]
    assert found.reference.by_group("test", "inferred") == {}
