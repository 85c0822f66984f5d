"""``cues`` over shards: the same bytes for any number of them, answers of the user, and small tables."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from engine.execution.local_executor import LocalExecutor
from operators.base import FEATURES, LABEL, CannotPredictError, Context, DatasetDelta, OperatorError
from operators.class_shares import class_shares
from operators.columns import numpy_to_vectors
from operators.cues import CueSettings, fit, weights
from operators.cues.adaptor import WEIGHT_COLUMN, Cues
from operators.cues.gather import TextRequest, _write_drawn_rows, read_sample, rows_that_fit
from operators.cues.models.draws import draw_sample
from operators.cues.named.references import FeatureColumns
from operators.cues.output.explanation import row_facts
from operators.cues.params import CuesParams, CueWords
from operators.explanations import ExplainedRow
from operators.hashing import END
from operators.ingest.adaptor import Ingest
from operators.ingest.params import IngestParams
from tests.unit.in_memory import MemoryReader, run_operator, split_table

NAMES = (*(f"f{j}" for j in range(6)), "background", "constant")


def as_table(X: Any, y: Any) -> pa.Table:
    return pa.table({FEATURES: numpy_to_vectors(X), LABEL: pa.array(y, pa.int32())})


def ingest_state(folder: Path, classes: list[str], widths: list[int]) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "classes.json").write_text(json.dumps({"classes": classes, "widths": widths}))
    return {"ingest": folder}


def run_cues(
    folder: Path, tables: list[pa.Table], params: CuesParams | None = None, *, classes: int = 2, seed: int = 0
) -> tuple[Any, dict[str, float], Path]:
    """Weights, metrics and state folder."""
    width = next(len(table[FEATURES][0]) for table in tables if table.num_rows)
    names = NAMES if width == len(NAMES) else tuple(f"c{j}" for j in range(width))
    state = folder / "state"
    state.mkdir(parents=True)
    states = ingest_state(folder / "ingest", [str(c) for c in range(classes)], [1] * width)
    operator = Cues(params or CuesParams(), names)
    found, metrics = run_operator(operator, tables, state, seed, states)
    return found[WEIGHT_COLUMN].to_numpy(), metrics, state


@pytest.mark.parametrize("max_rows", [50_000, 2000])
def test_any_cut_into_shards_gives_the_same_bytes(cue_problem: Any, tmp_path: Path, max_rows: int) -> None:
    X, label, _, _, _ = cue_problem
    table, params = as_table(X, label), CuesParams(max_rows=max_rows)
    whole, metrics, state = run_cues(tmp_path / "one", [table], params)
    for cuts in ([100, 101, 4000], list(range(0, 6000, 500)), [0, 6000]):
        parts = split_table(table, cuts)
        found, others, folder = run_cues(tmp_path / str(len(cuts)), parts, params)
        assert np.array_equal(found, whole)
        assert others == metrics
        files = ["cues.json", "cues.npz", "importance.json", "suspects.json"]
        for name in files:
            assert (folder / name).read_bytes() == (state / name).read_bytes()
        assert sorted(path.name for path in folder.iterdir()) == files
    assert min(max_rows, 6000) - 2 <= metrics["sample_rows"] <= min(max_rows, 6000)
    assert metrics["gate"] > 0.5


def test_the_sample_over_shards_is_that_of_the_table_in_memory(cue_problem: Any, tmp_path: Path) -> None:
    X, label, _, _, ids = cue_problem
    found, _, _ = run_cues(tmp_path, split_table(as_table(X, label), [777, 3000]), CuesParams(max_rows=2000))
    assert len(draw_sample(label, ids, 2000, 0)) in range(1998, 2001)
    expected = weights(fit(X, label, ids, CueSettings(max_rows=2000)), X, label, ids)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_too_many_classes_are_neither_sampled_nor_given_importances(tmp_path: Path) -> None:
    """The sample had 500 rows of each class, and permutation importance took minutes."""
    label = np.arange(101 * 60) % 101
    X = np.column_stack([label, label % 7, label % 5, np.zeros((len(label), 4))]).astype(np.float32)
    params = CuesParams(max_rows=2000, spurious=(CueWords(column="note", words=("rare",)),))
    table = as_table(X, label).append_column("note", pa.array(["plain"] * len(label)))
    found, metrics, state = run_cues(tmp_path / "many", [table], params, classes=101)
    record = json.loads((state / "suspects.json").read_text())
    assert record["reason"] == "101 classes are more than 100"
    assert record["unclear"] == []  # of so few rows nothing can be said
    assert metrics["sample_rows"] == 101
    assert not (state / "importance.json").exists()
    assert np.array_equal(found, np.ones(len(label), np.float32))


def test_a_host_that_lacks_the_scratch_folder_makes_it(cue_problem: Any, tmp_path: Path) -> None:
    X, label, _, _, _ = cue_problem
    reader = MemoryReader([as_table(X, label)])
    assert _write_drawn_rows(reader, 0, [END - 1] * 2, tmp_path / "a" / "sample", TextRequest(), 0) == len(
        label
    )
    assert len(read_sample([tmp_path / "a" / "sample" / "0.npz"], 8).y) == len(label)


def test_a_named_column_is_balanced_and_listed(cue_problem: Any, tmp_path: Path) -> None:
    X, label, _, _, _ = cue_problem
    params = CuesParams(spurious=("background",), legitimate=("f0",))
    found, metrics, state = run_cues(tmp_path, [as_table(X, label)], params)
    broken = (X[:, 6] > 1) != label
    assert found[broken].mean() > 3 * found[~broken].mean()
    assert metrics["named"] == 1
    record = json.loads((state / "suspects.json").read_text())
    answers = {s["feature"]: s["answer"] for s in record["suspects"]}
    assert (answers.pop("background"), answers.pop("f0")) == ("spurious", "legitimate")
    assert set(answers.values()) == {"open"}
    assert record["spurious"] == ["background"]


@pytest.mark.parametrize("answer", ["open", "spurious", "legitimate"])
def test_one_answer_is_enough_for_a_column_and_its_complement(
    cue_problem: Any, tmp_path: Path, answer: str
) -> None:
    X, label, _, cue, _ = cue_problem
    X = X.copy()
    X[:, 5], X[:, 6] = 1 - cue, cue
    answers = {} if answer == "open" else {answer: ("background",)}
    _, metrics, state = run_cues(tmp_path, [as_table(X, label)], CuesParams.model_validate(answers))
    record = json.loads((state / "suspects.json").read_text())
    (twin,) = (one for one in record["suspects"] if one["feature"] in ("f5", "background"))
    assert {twin["feature"], *twin["also"]} == {"f5", "background"}
    assert twin["answer"] == answer
    assert "kept" not in record
    assert (metrics["blend"] > 0.5) == (answer != "legitimate")


def test_the_first_suspect_is_told_in_words_of_the_source(cue_problem: Any, tmp_path: Path) -> None:
    X, label, _, cue, _ = cue_problem
    X = X.copy()
    X[:, 6] = cue
    _, _, state = run_cues(tmp_path, [as_table(X, label)])
    record = json.loads((state / "suspects.json").read_text())
    first, second, *_ = record["suspects"]
    assert first["slice"] == "background is 1 (not 0)"
    assert first["gain_rows"] in [((cue == side) & (label == c)).sum() for side in (0, 1) for c in (0, 1)]
    assert first["small_cells"] == []
    assert record["balanced_columns"] == ["background"]
    assert first["balanced"]
    assert "balanced" not in second
    assert first["share"] == pytest.approx((cue == 1).mean())
    assert first["accuracy_inside"]["0"] < 0.6 < 0.9 < first["accuracy_inside"]["1"]
    assert first["gain"] > 0.1 > first["cost"] - 0.1


def test_a_slice_takes_the_cut_of_the_user(cue_problem: Any, tmp_path: Path) -> None:
    X, _, y, _, _ = cue_problem  # no label is wrong
    X = X[:, [0, 1]]  # without the cue, so that the search has no part in the weights
    params = CuesParams.model_validate({"spurious": [{"column": "c1", "cut": 0.25}]})
    found, _, _ = run_cues(tmp_path, [as_table(X, y)], params)
    for c in (0, 1):
        for side in (X[:, 1] > 0.25, X[:, 1] <= 0.25):
            assert len(np.unique(found[(y == c) & side])) == 1
    assert len(np.unique(found)) == 4


def test_one_hot_columns_are_one_category(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    level = np.where(rng.random(2000) < 0.9, y, rng.integers(0, 3, 2000))
    X = np.column_stack([np.eye(3)[level], rng.normal(size=(2000, 1)) + y[:, None]]).astype(np.float32)
    for spurious in (["c0", "c1", "c2"], "c*"):
        folder = tmp_path / str(len(spurious))
        if spurious == "c*":
            with pytest.raises(OperatorError, match="4 features c0 to c3 are named as one category"):
                run_cues(folder, [as_table(X, y)], CuesParams.model_validate({"spurious": [spurious]}))
            continue
        found, _, _ = run_cues(folder, [as_table(X, y)], CuesParams.model_validate({"spurious": [spurious]}))
        assert found[level != y].mean() > 3 * found[level == y].mean()


@pytest.mark.parametrize("columns", [1, 2, 40])
@pytest.mark.parametrize("n", [1, 20, 99, 130])
@pytest.mark.parametrize("params", [{}, {"robustness": "bold"}, {"spurious": ["c0"]}])
def test_tables_with_few_rows_never_fail(
    columns: int, n: int, params: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(n + columns)
    y = np.minimum(np.arange(n), 3) % 4  # three classes of one row
    X = rng.normal(size=(n, columns)).astype(np.float32)
    X[:, -1] = 7.0
    tables = split_table(as_table(X, y), [n // 2])
    found, metrics, _ = run_cues(tmp_path, tables, CuesParams.model_validate(params), classes=5)
    assert np.isfinite(found).all()
    assert all(np.isfinite(list(metrics.values())))
    if n < 100:
        sums = [found[y == c].sum() for c in np.unique(y)]
        np.testing.assert_allclose(sums / np.sum(sums), class_shares(np.bincount(y)), rtol=1e-5)


def test_where_the_evidence_is_weak_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.25).astype(int)
    X = (rng.normal(size=(3000, 6)) + 0.3 * y[:, None]).astype(np.float32)
    with caplog.at_level(logging.INFO, "rowsieve"):
        found, metrics, _ = run_cues(tmp_path, [as_table(X, y)])
    assert metrics["gate"] == metrics["blend"] == 0
    assert len(np.unique(found)) == 2
    assert "is a shortcut or honest signal" in caplog.text
    assert "so that it is not balanced without your answer" in caplog.text


@pytest.mark.parametrize("spurious", [(), ("f1",)])
def test_where_nothing_can_be_searched_for_the_log_says_why(
    spurious: tuple[str, ...], cue_problem: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X, label, _, _, _ = cue_problem
    with caplog.at_level(logging.INFO, "rowsieve"):
        run_cues(tmp_path, [as_table(X[:80], label[:80])], CuesParams(spurious=spurious))
    assert "No shortcut was searched for (80 rows are fewer than 100)" in caplog.text
    assert "max_named_cost" not in caplog.text


@pytest.mark.parametrize("spurious", ["constant", {"column": "f1", "cut": 1e6}])
def test_a_named_shortcut_that_divides_nothing_is_told(
    spurious: Any, cue_problem: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X, label, _, _, _ = cue_problem
    params = CuesParams.model_validate({"spurious": [spurious, "background"]})
    with caplog.at_level(logging.INFO, "rowsieve"):
        _, _, state = run_cues(tmp_path, [as_table(X, label)], params)
    (name,) = json.loads((state / "suspects.json").read_text())["undivided"]
    assert name in ("constant", "{column: f1, cut: 1000000.0}")
    assert f"names {name}, but no usable cut" in caplog.text
    (said,) = Cues(params).warnings({}, lambda: state)
    assert f"`{name}` as spurious, but no usable cut" in said
    assert "`rowsieve cues OUTPUT` lists features" in said
    assert "cues: 1 named shortcuts are balanced" in caplog.text


def test_a_feature_that_is_not_finite_is_named(tmp_path: Path) -> None:
    X = np.ones((200, 2), np.float32)
    X[7, 1] = np.inf
    with pytest.raises(OperatorError, match="feature 1 of the row with id 7 is inf"):
        run_cues(tmp_path, [as_table(X, np.arange(200) % 2)])


def test_new_rows_are_weighed_by_the_kept_state(cue_problem: Any, tmp_path: Path) -> None:
    X, label, _, _, _ = cue_problem
    _, metrics, old = run_cues(tmp_path / "a", [as_table(X, label)])
    new = tmp_path / "b"
    new.mkdir()
    context = Context(MemoryReader([]), new, {})
    operator = Cues(CuesParams(), NAMES)
    delta = DatasetDelta(old, metrics, (1,), False)
    assert operator.can_predict
    assert operator.partial_fit(context, delta, LocalExecutor()) == metrics
    assert (new / "cues.npz").read_bytes() == (old / "cues.npz").read_bytes()
    with pytest.raises(CannotPredictError, match="rows are gone"):
        operator.partial_fit(context, DatasetDelta(old, metrics, (), True), LocalExecutor())


def test_names_are_checked_when_the_chain_is_made() -> None:
    ingest = Ingest(IngestParams(label="y", features=("PAY_0", "image", "race_a", "race_b")))

    def planned(**params: Any) -> Cues:
        return Cues(CuesParams.model_validate(params)).in_chain([ingest])

    planned(spurious=["PAY_0", "image[3]", ["race_a", "race_b"], "race_*", {"column": "image[1]", "cut": 2}])
    with pytest.raises(OperatorError, match=r"cues.spurious: .*no column 'PAY_1'. Did you mean 'PAY_0'\?"):
        planned(spurious=["PAY_1"])
    with pytest.raises(OperatorError, match=r"no column 'PAX_0 > 3'. Did you mean 'PAY_0'\?"):
        planned(spurious=["PAX_0 > 3"])
    with pytest.raises(OperatorError, match=r"follows the column 'PAY_0' in 'PAY_0 after 12:00' is no slice"):
        planned(spurious=["PAY_0 after 12:00"])
    with pytest.raises(OperatorError, match=r"cues.legitimate: .*no column 'img\[2\]'"):
        planned(legitimate=["img[2]"])
    with pytest.raises(OperatorError, match=r"write x\[0\]"):
        Cues(CuesParams(spurious=("PAY_0",))).in_chain([])
    Cues(CuesParams(spurious=("x[7]",))).in_chain([])
    planned(spurious=["image[0]"], legitimate=["image[1]", "race_*"])
    for legitimate in ("PAY_*", "PAY_0[0]"):
        with pytest.raises(OperatorError, match="'PAY_0' under spurious and 'PAY_"):
            planned(spurious=["PAY_0"], legitimate=[legitimate])
    with pytest.raises(OperatorError, match=r"'image\[1\]' under spurious and 'image' under legitimate"):
        planned(spurious=["image[1]"], legitimate=["image"])


def test_names_become_positions_and_back() -> None:
    columns = FeatureColumns(("a", "image", "b_1", "b_2"), (1, 3, 1, 1))
    assert columns.meaning("image").positions == (1, 2, 3)
    assert columns.meaning("image[2]").positions == (3,)
    assert columns.meaning("b_*").positions == (4, 5)
    assert [columns.name(p) for p in range(6)] == ["a", "image[0]", "image[1]", "image[2]", "b_1", "b_2"]
    assert FeatureColumns(("x",), (1,)).name(0) == "x[0]"
    assert columns.named(("a", "b_1")).columns == (0, 4)
    with pytest.raises(OperatorError, match="the entries 0 to 2"):
        columns.meaning("image[3]")
    with pytest.raises(OperatorError, match="a cut does not divide the 3 features"):
        columns.named(CuesParams.model_validate({"spurious": [{"column": "image", "cut": 1}]}).spurious[0])


def test_one_answer_for_each_column() -> None:
    with pytest.raises(ValidationError, match="'a' is named as spurious and as legitimate"):
        CuesParams.model_validate({"spurious": ["a"], "legitimate": [{"column": "a", "cut": 1}]})


def test_many_features_are_sampled_on_fewer_rows() -> None:
    assert rows_that_fit(640, 50_000) == 50_000
    assert rows_that_fit(3200, 50_000) == 10_000
    assert rows_that_fit(0, 50_000) == 50_000


def test_a_run_says_what_the_weights_cost(tmp_path: Path):
    costly = {
        "unweighted_mean_accuracy": 0.9496,
        "unweighted_worst_accuracy": 0.1,
        "published_mean_accuracy": 0.8,
        "published_worst_accuracy": 0.31,
    }
    (said,) = Cues(CuesParams()).warnings(costly, Path)
    assert "0.950 -> 0.800 of all rows" in said
    assert "with the weights of `cues`" in said
    assert "0.100 -> 0.310 of the worst" in said
    assert "max_mean_loss" not in said
    milder = costly | {"milder_worst_accuracy": 0.11}
    assert Cues(CuesParams()).warnings(milder, Path) == (said,)
    (said,) = Cues(CuesParams()).warnings(costly | {"milder_worst_accuracy": 0.25}, Path)
    assert said.endswith("takes milder weights, with 0.250 in the worst group or class.")
    assert Cues(CuesParams()).warnings(costly | {"published_mean_accuracy": 0.94}, Path) == ()
    assert Cues(CuesParams()).warnings({}, Path) == ()
    left_out = {"left_out_rows.far": 13.0}
    (tmp_path / "suspects.json").write_text(json.dumps({"trade_off": {"classes_left_out": {"far": 13}}}))
    (small,) = Cues(CuesParams()).warnings(left_out, lambda: tmp_path)
    assert small.startswith(
        "the class 'far' (13 rows) has fewer than 50 rows to learn from: no figure of the "
    )
    assert "`operators.weights: {min_class_rows: 13, class_strength: 1}`" in small
    both = costly | left_out | {"milder_worst_accuracy": 0.25}
    assert Cues(CuesParams()).warnings(both, lambda: tmp_path) == (small, said)


def test_a_run_names_all_classes_that_are_in_no_figure(tmp_path: Path) -> None:
    """Metrics hold 20 of them: the warning counted these, and its remedy left the rarest class out."""
    y = np.repeat(np.arange(26), [500, 300, *[2] * 23, 1])
    X = (np.random.default_rng(0).normal(size=(len(y), 3)) + np.eye(3)[np.minimum(y, 2)]).astype(np.float32)
    _, metrics, state = run_cues(tmp_path, [as_table(X, y)], classes=26)
    assert [key for key in metrics if "left_out" in key][:2] == ["left_out_rows.25", "left_out_rows.2"]
    said = Cues(CuesParams()).warnings(metrics, lambda: state)[0]
    assert "and 19 more have fewer than 50 rows" in said
    assert "min_class_rows: 1," in said


def test_a_class_that_is_in_no_figure_has_a_metric_a_warning_and_a_fact(tmp_path: Path) -> None:
    """The worst class was 1.000 where a class of 20 rows, which was not named, had .049."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [500, 300, 20])
    X = (rng.normal(size=(820, 3)) + np.eye(3)[y]).astype(np.float32)
    _, metrics, state = run_cues(tmp_path, [as_table(X, y)], classes=3)
    assert {key: value for key, value in metrics.items() if "left_out" in key} == {"left_out_rows.2": 20.0}
    assert len(Cues(CuesParams()).warnings(metrics, lambda: state)) == 1
    told = [row_facts(state, ExplainedRow(row, 0, as_table(X[[row]], y[[row]])))[0].note for row in (0, 810)]
    assert told == [
        "the weight without any suspicion",
        "the weight without any suspicion; no figure speaks for this class of 20 rows",
    ]
    found = json.loads((state / "suspects.json").read_text())
    slice_ = {"position": 0, "cut": 0.0, "slice": "a > 0", "gain": 0.0, "cost": 0.0, "answer": "open"}
    found |= {"part": 0.0, "suspects": [{**slice_, "strength": strength} for strength in (0.6, 0.08)]}
    (state / "suspects.json").write_text(json.dumps(found))
    facts = row_facts(state, ExplainedRow(0, 0, as_table(X[[0]], y[[0]])))
    assert [fact.note for fact in facts[-2:]] == [
        "suspected shortcut, strength 0.60, answer: open",
        "suspected shortcut, strength 0.08, weak, no answer is needed",
    ]
