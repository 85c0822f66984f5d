"""Parameters of the trainers: defaults, what is refused, and which trainer accepts which model."""

from pathlib import Path
from typing import Any

import pytest

from engine.core.errors import InputError
from engine.recipe.estimators import ESTIMATORS, OBJECTIVES_OF
from engine.recipe.trainers import TRAINERS, model_table, parse_params

ROOT = Path(__file__).parents[5]
FOREST = {"model": "sklearn:RandomForestClassifier", "model_params": {"n_estimators": 12}}


def test_parameters_are_checked() -> None:
    with pytest.raises(InputError, match=r"train.trainer: there is no trainer 'gdor'. Did you mean 'gdro'"):
        parse_params({"trainer": "gdor"})
    with pytest.raises(InputError, match=r"train: stepsize: unknown key. Did you mean 'step_size'"):
        parse_params({"trainer": "gdro", "stepsize": 1})
    belongs = r"train: alpha: trainer erm has no such key; it belongs to cvar_doro, chi2_dro, boosted_cvar"
    with pytest.raises(InputError, match=belongs):
        parse_params({"alpha": 0.1})
    with pytest.raises(InputError, match=r"optimizer lbfgs solves model logistic"):
        parse_params({"trainer": "gdro", "optimizer": "lbfgs"})
    many = parse_params({"trainer": "gdro"})
    assert [many.for_rows(n).batch_size for n in (100, 32_768, 130_000, 10**8)] == [128, 128, 512, 8192]
    assert parse_params({"batch_size": 32}).for_rows(10**6).batch_size == 32
    assert parse_params({"batch_size": 512}).n_slots == 8
    with pytest.raises(InputError, match=r"amp is read by models that take steps.*optimizer to sgd"):
        parse_params({"trainer": "erm", "amp": True})
    assert parse_params({"trainer": "erm", "amp": True, "optimizer": "sgd"}).amp


def test_many_rows_are_trained_by_steps_not_by_epochs() -> None:
    """Up to 2,097,152 rows 50 epochs of at most 256 steps; beyond, as many steps in fewer epochs."""
    default = parse_params({"trainer": "gdro"})
    sizes = (1000, 2_097_152, 4_194_304, 10**7, 10**9)
    assert [default.for_rows(n).n_epochs for n in sizes] == [50, 50, 25, 10, 1]
    steps = [n * default.for_rows(n).n_epochs / default.for_rows(n).step_rows for n in sizes[1:4]]
    assert max(steps) <= 12_800
    assert parse_params({"epochs": 40}).for_rows(10**7).n_epochs == 40
    assert parse_params({"batch_size": 8192}).for_rows(10**7).n_epochs == 50


def test_keys_that_a_trainer_does_not_read_are_errors() -> None:
    for trainer in ("boosted_cvar", "jtt", "erm_plain"):
        with pytest.raises(InputError, match=r"train: sampling: "):
            parse_params({"trainer": trainer, "sampling": "group_balanced"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"trainer": "gdro", **FOREST},
            "gradient step.*erm, resample, jtt or boosted_cvar.*trainer .*sklearn",
        ),
        ({"trainer": "cvar_doro", **FOREST}, "trainer cvar_doro changes the rows"),
        ({"trainer": "chi2_dro", **FOREST}, "trainer chi2_dro changes the rows"),
        ({"trainer": "dfr", **FOREST}, "dfr"),
        ({"model": "sklearn:RandomForestClasifier"}, "RandomForestClassifier"),
        ({"model": "sklearn:linear_model.SGDClassifier"}, "cannot name this estimator"),
        ({"model": "sklearn:utils"}, "cannot name this estimator"),
        ({**FOREST, "model_params": {"n_estimator": 5}}, "n_estimators"),
        ({**FOREST, "model_params": {"n_estimators": 0}}, "model_params.n_estimators.*greater"),
        ({**FOREST, "model_params": {"class_weight": "balanced"}}, "takes no 'class_weight'"),
        ({**FOREST, "lr": 0.1}, "lr is read by models that are trained by gradients"),
        ({**FOREST, "epochs": 3}, "epochs is read by"),
        ({**FOREST, "where": "ray"}, "fitted in one worker"),
        ({**FOREST, "keep": "best"}, "no epochs"),
        ({"model": "xgboost:XGBClasifier"}, "xgboost:XGBClassifier"),
        ({"model": "lightgbm:Booster"}, "cannot name this estimator"),
        (
            {"trainer": "gdro", "model": "xgboost:XGBClassifier"},
            "gradient step.*xgboost:XGBC",
        ),
        (
            {"trainer": "dfr", "model": "lightgbm:LGBMClassifier"},
            "last layer.*, and lightgbm",
        ),
        ({"model": "xgboost:XGBClassifier", "model_params": {"max_dept": 3}}, "max_depth"),
        (
            {"model": "xgboost:XGBClassifier", "model_params": {"objective": "rank:map"}},
            "no 'objective'",
        ),
        ({"model": "lightgbm:LGBMClassifier", "model_params": {"subsample": 0.5}}, "subsample_freq alone"),
        ({"model": "mlp", "model_params": {"n_estimators": 5}}, "model_params is read by estimators"),
    ],
)
def test_what_cannot_be_trained_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"(?s){message}"):
        parse_params(values)


def test_the_refusal_ends_in_the_table_of_trainers_and_models() -> None:
    with pytest.raises(InputError) as caught:
        parse_params({"trainer": "gdro", **FOREST})
    assert str(caught.value).endswith(f"Which trainer accepts which model:\n{model_table()}")
    with pytest.raises(InputError) as caught:
        parse_params({"trainer": "gdro", "patience": 3})
    assert str(caught.value) == ("train: patience stops when no epoch scores better: set keep to best too.")


def test_the_page_says_what_the_trainers_accept() -> None:
    """The table of the page is that of ``model_table``, and ``parse_params`` agrees with every cell."""
    page = (ROOT / "engine" / "training" / "README.md").read_text("utf-8")
    table = model_table(markdown=True)
    assert table in page, f"put this table into engine/training/README.md:\n{table}"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    header, *lines = cells[:1] + cells[2:]
    seen = []
    for trainers, *accepted in lines:
        for name in trainers.replace("`", "").split(", "):
            seen.append(name)
            for model in set(ESTIMATORS) - set(OBJECTIVES_OF):
                says = dict(zip(header[1:], accepted, strict=True))[f"{model.partition(':')[0]}:..."]
                assert accepts(name, model) == (says == "yes"), (name, model)
            assert accepts(name, "mlp")
    assert sorted(seen) == sorted(TRAINERS)


def accepts(trainer: str, model: str) -> bool:
    try:
        parse_params({"trainer": trainer, "model": model})
    except InputError:
        return False
    return True


def test_steps_that_are_fixed_or_not_are_no_key_of_estimators() -> None:
    with pytest.raises(InputError, match="reproducible is read by models that are trained by gradients"):
        parse_params({"model": "sklearn:RandomForestClassifier", "reproducible": "statistical"})
