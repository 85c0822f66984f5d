"""The operator ``split``: rows as the kernel would choose them, however they are sharded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.runs.runner import run
from operators.base import FEATURES, GROUP, IS_OUTLIER, LABEL, SPLIT, Context, OperatorError
from operators.columns import numpy_to_vectors
from operators.hashing import order_keys
from operators.splits import ConstrainedFolds, ConstrainedKernelKMeans
from operators.splits.adaptor import Split
from operators.splits.by_domain import ByDomain
from operators.splits.params import DomainParams
from operators.splits.shift import stored_landmarks
from operators.splits.start import SAMPLE
from tests.data import small_recipe
from tests.on_arrays import mmd
from tests.unit.engine.runs.test_run import published
from tests.unit.in_memory import MemoryReader, run_operator, split_table

Array = Any


def rows(n: int, seed: int, *, equal: bool = False) -> pa.Table:
    """Features in two heaps, labels and groups; with ``equal`` each row occurs many times."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 4)).astype(np.float32)
    X[random.random(n) < 0.3] += 2
    if equal:
        X = np.sign(X).astype(np.float32)
    return pa.table(
        {
            FEATURES: numpy_to_vectors(X),
            LABEL: pa.array(random.integers(0, 2, n), pa.int32()),
            GROUP: pa.array(random.integers(-1, 2, n), pa.int32()),
            IS_OUTLIER: random.random(n) < 0.1,
            "site": pa.array([None if i % 9 == 0 else f"site {i % 7 % 3}" for i in range(n)]),
        }
    )


def split(
    params: dict[str, Any], tables: Sequence[pa.Table], seed: int = 3
) -> tuple[list[str], dict[str, float]]:
    kind = Split.variant(params)
    with TemporaryDirectory() as folder:
        found, metrics = run_operator(kind(kind.Params(**params)), tables, Path(folder), seed)
        assert not (Path(folder) / "work").exists()
    return found[SPLIT].to_pylist(), metrics


def features(table: pa.Table) -> Array:
    return np.stack(table[FEATURES].to_numpy()).astype(np.float32)


@given(
    n=st.integers(30, 200),
    seed=st.integers(0, 1000),
    cuts=st.lists(st.integers(0, 200), max_size=4),
    kernel=st.sampled_from(["linear", "rbf"]),
    within=st.sampled_from(["label", "group", "site"]),
    tolerance=st.sampled_from([0.0, 0.5]),
    equal=st.booleans(),
)
def test_rows_are_those_of_the_kernel(
    n: int, seed: int, cuts: list[int], kernel: Any, within: Any, tolerance: float, equal: bool
) -> None:
    table = rows(n, seed, equal=equal)
    marks: dict[str, Any] = {"landmarks": 20} if kernel == "rbf" else {}
    params = {"method": "cluster", "kernel": kernel, "tolerance": tolerance, "n_init": 2}
    if within != "label":
        marks |= {"within": "domain", "domain": within}
    found, metrics = split(params | marks, split_table(table, cuts))
    groups = table[LABEL].to_numpy().astype(str)
    if within != "label":
        groups = np.array(
            [f"{y} {domain}" for y, domain in zip(groups, table[within].to_pylist(), strict=True)]
        )
    model = ConstrainedKernelKMeans(
        0.2,
        kernel,
        landmarks=marks.get("landmarks"),
        tolerance=tolerance,
        n_init=2,
        random_state=3,
        max_iter=50,
    ).fit(features(table), groups)
    np.testing.assert_array_equal(np.array(found) == "validation", model.validation_mask_)
    assert metrics["mmd"] == model.mmd_
    assert metrics["mmd_random"] == pytest.approx(model.random_mmd_)
    assert metrics["objective"] == pytest.approx(model.inertia_)
    assert metrics["steps"] == len(model.objective_)
    assert (metrics["start_mmd_min"], metrics["start_mmd_max"]) == (
        model.start_mmds_.min(),
        model.start_mmds_.max(),
    )


def test_more_rows_than_the_sample_are_those_of_the_kernel_too() -> None:
    table = rows(SAMPLE + 1500, 0)
    marks: dict[str, Any] = {"kernel": "rbf", "landmarks": 30, "n_init": 2}
    model = ConstrainedKernelKMeans(0.2, random_state=3, max_iter=50, **marks)
    mask = model.fit_predict(features(table), table[LABEL].to_numpy())
    for cuts in ([], [1, 700, 701, 4000]):
        found, metrics = split({"method": "cluster", **marks}, split_table(table, cuts))
        np.testing.assert_array_equal(np.array(found) == "validation", mask)
        assert metrics["mmd"] == model.mmd_


def test_dropped_and_test_rows_stay_out() -> None:
    table = rows(400, 1)
    params = {"method": "cluster", "validation": 0.2, "test": 0.25, "drop_outliers": True, "n_init": 2}
    found, metrics = split(params, split_table(table, [150]))
    outlier, y = table[IS_OUTLIER].to_numpy(), table[LABEL].to_numpy()
    assert {part for part, bad in zip(found, outlier, strict=True) if bad} == {"dropped"}
    kept = np.array(found)[~outlier]
    for label in (0, 1):
        of_label = kept[y[~outlier] == label]
        assert (of_label == "validation").sum() == pytest.approx(0.2 * len(of_label), abs=1)
        assert (of_label == "test").sum() == pytest.approx(0.25 * len(of_label), abs=1)
    assert metrics["validation"] == found.count("validation")
    assert metrics["train"] == found.count("train")
    assert metrics["test"] == found.count("test")
    assert metrics["dropped"] == found.count("dropped") == outlier.sum()


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("method", ["random", "leave_one_domain_out", "cluster"])
def test_every_method_says_how_far_its_parts_are_apart(method: str, kernel: Any) -> None:
    table = rows(300, 2)
    # All rows as landmarks: the features are exact, up to the rank cut.
    marks: dict[str, Any] = {"kernel": kernel} | ({"landmarks": 300, "gamma": 0.1} if kernel == "rbf" else {})
    found, metrics = split({"method": method, **marks}, split_table(table, [100, 110]))
    X = features(table).astype(np.float64)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = mmd(z, np.array(found) == "validation", kernel, 0.1)
    assert metrics["mmd"] == pytest.approx(expected, rel=0.02)
    random = np.random.default_rng(0)
    mask = np.array(found) == "validation"
    floor = [mmd(z, random.permutation(mask), kernel, 0.1) ** 2 for _ in range(100)]
    assert metrics["mmd_random"] == pytest.approx(np.sqrt(np.mean(floor)), rel=0.2)


def test_the_shift_of_a_domain_that_the_sample_misses_is_measured(caplog: pytest.LogCaptureFixture) -> None:
    n = 2 * SAMPLE
    X = np.random.default_rng(0).normal(size=(n, 2)).astype(np.float32)
    site = np.full(n, "a", object)
    site[[2287, 6200]] = "rare"  # these have the largest hashes
    columns = {FEATURES: numpy_to_vectors(X), LABEL: np.zeros(n, np.int32), GROUP: np.zeros(n, np.int32)}
    table = pa.table({**columns, IS_OUTLIER: np.zeros(n, bool), "site": pa.array(site)})
    wanted = {"method": "leave_one_domain_out", "domain": "site", "leave_out": "rare"}
    _, metrics = split(wanted, split_table(table, [n // 3]))
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert metrics["mmd"] == pytest.approx(mmd(z, site == "rare", "linear", 0.1), rel=0.05)
    caplog.set_level("INFO")
    assert "mmd" not in split({"validation": 0.0}, [rows(50, 0)])[1]
    assert "the part 'validation' has no rows" in caplog.text


def test_one_domain_is_left_out() -> None:
    table = rows(300, 0)
    sites = np.array(table["site"].to_pylist(), str)
    for params, expected in (({"leave_out": "site 1"}, "site 1"), ({"validation": 0.3}, "site 2")):
        wanted = {"method": "leave_one_domain_out", "domain": "site", **params}
        found, metrics = split(wanted, split_table(table, [5, 120]))
        if expected == "site 2":
            found_sites = sorted(set(sites) - {"None"})
            share = 0.3 * (sites != "None").sum()
            expected = min(found_sites, key=lambda name: abs((sites == name).sum() - share))
        assert [part == "validation" for part in found] == (sites == expected).tolist()
        assert metrics["domains"] == 3
    by_group, _ = split({"method": "leave_one_domain_out", "leave_out": "1", "drop_outliers": True}, [table])
    outlier, group = table[IS_OUTLIER].to_numpy(), table[GROUP].to_numpy()
    assert [part == "validation" for part in by_group] == ((group == 1) & ~outlier).tolist()
    with pytest.raises(
        OperatorError, match=r"no row that is split has 'site 4' in column 'site'\. Did you mean 'site"
    ):
        split({"method": "leave_one_domain_out", "domain": "site", "leave_out": "site 4"}, [table])
    single = table.set_column(table.column_names.index("site"), "site", pa.array(["x"] * 300))
    with pytest.raises(OperatorError, match="has 1 values among the rows that are split"):
        split({"method": "leave_one_domain_out", "domain": "site"}, [single])


@pytest.mark.parametrize(
    "params",
    [
        {"method": "random", "fit_on": "all", "key": "site"},
        {"method": "leave_one_domain_out", "domain": "site"},
        {"method": "cluster", "within": "domain", "domain": "site"},
    ],
)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_a_key_or_domain_that_is_nan_is_none(params: dict[str, Any], kind: Any) -> None:
    """All rows without a customer were one customer, and so in one part."""
    sites = np.random.default_rng(0).integers(0, 5, 200).astype(kind)
    sites[::2] = np.nan
    table = rows(200, 0)
    place = table.column_names.index("site")
    by_nan, by_null = (
        table.set_column(place, "site", pa.array(sites, from_pandas=is_null)) for is_null in (False, True)
    )
    assert by_null["site"].null_count == 100 > by_nan["site"].null_count
    assert split(params, [by_nan]) == split(params, [by_null])


def test_the_domain_nearest_to_the_share_of_all_rows_is_chosen() -> None:
    operator = ByDomain(DomainParams(domain="site", validation=0.2, test=0.5))
    # Half of the rows are test rows: of 1,000, A has 200 and B 400, which is .2 of all among the others.
    assert operator._choose(Counter(A=100, B=200, C=200)) == "B"


def test_bad_input_names_the_operator() -> None:
    with pytest.raises(
        OperatorError,
        match=r"operators\.split: a holdout of 0\.01 puts no row into the validation part",
    ):
        split({"method": "cluster", "validation": 0.01}, [rows(40, 0)])
    with pytest.raises(OperatorError, match=r"operators\.split: the rbf kernel with gamma = 1e\+06"):
        split({"method": "cluster", "kernel": "rbf", "gamma": 1e6}, [rows(40, 0)])
    with pytest.raises(OperatorError, match=r"no method 'clusters'\. Did you mean 'cluster'"):
        Split.variant({"method": "clusters"})
    with pytest.raises(ValidationError, match="landmarks is read by kernel: rbf only"):
        Split.variant({"method": "cluster"}).Params(method="cluster", landmarks=5)
    with pytest.raises(ValidationError, match="stratify_by_group"):
        Split.variant({"method": "cluster"}).Params(method="cluster", stratify_by_group=True)


@pytest.mark.parametrize(
    ("params", "remedy"),
    [
        ({"fit_on": "all", "test": 0.1}, "Set split.stratify_by_group: false"),
        ({"method": "cluster", "within": "domain"}, "Set split.within: label, or raise split.tolerance."),
    ],
    ids=["random", "cluster"],
)
def test_a_part_that_lacks_half_of_its_rows_is_named(params: dict[str, Any], remedy: str) -> None:
    """One group has 100 rows, and 500 have two, whose share rounds to none."""
    table = rows(1100, 0)
    table = table.set_column(2, GROUP, pa.array(np.maximum(np.arange(1100) // 2, 49) - 49, pa.int32()))
    kind = Split.variant(params)
    operator = kind(kind.Params(**params))
    _, metrics = split(params, [table])
    said = operator.warnings(metrics, Path)
    assert 10 <= metrics["validation"] <= 30
    assert said[0].startswith(
        f"{metrics['validation']:.0f} of 1,100 rows are validation rows, less than half of the share 0.2: "
    )
    assert remedy in said[0]
    assert len(said) == (2 if "test" in params else 1)
    assert operator.warnings(split(params, [rows(1100, 0)])[1], Path) == ()
    few = {"train": 900.0, "validation": 80.0, "test": 80.0, "duplicates_in_other_split": 40.0}
    operator.drops_duplicates = True
    assert len(operator.warnings(few, Path)) == 1  # so many may have been dropped as duplicates


@pytest.mark.parametrize(
    ("params", "is_drawn", "remedy"),
    [
        ({"key": "site"}, True, "Choose a split.key of more values"),
        ({"key": "site", "fit_on": "all"}, False, "Choose a split.key of more values"),
        ({}, True, "set split.fit_on: all"),
    ],
)
def test_drawn_parts_that_lack_rows_are_named(params: dict[str, Any], is_drawn: bool, remedy: str) -> None:
    """Three values of a key may all be drawn for training."""
    kind = Split.variant(params)
    operator = kind(kind.Params(**params))
    operator.fits_on_all_rows = is_drawn
    (said,) = operator.warnings({"train": 900.0, "validation": 0.0}, Path)
    assert said.startswith("0 of 900 rows are validation rows, less than half of the share 0.2: ")
    assert remedy in said
    assert operator.warnings({"train": 780.0, "validation": 120.0}, Path) == ()


def test_split_without_a_kernel_still_works(caplog: pytest.LogCaptureFixture) -> None:
    """A random split needs no features that differ; then it says nothing of the shift."""
    table = rows(50, 0).set_column(0, FEATURES, numpy_to_vectors(np.ones((50, 2), np.float32)))
    found, metrics = split({}, [table])
    assert found.count("validation") == metrics["validation"] == 10
    assert "mmd" not in metrics
    assert "all rows of the sample are the same" in caplog.text


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_keys_order_as_their_values(values: list[float]) -> None:
    keys, floats = order_keys(np.array(values)), np.array(values)
    np.testing.assert_array_equal(keys[:-1] < keys[1:], floats[:-1] < floats[1:])
    np.testing.assert_array_equal(keys[:-1] == keys[1:], floats[:-1] == floats[1:])


@pytest.mark.parametrize("within", [{}, {"within": "domain", "domain": "site"}])
def test_folds_are_those_of_the_estimator(within: dict[str, str]) -> None:
    table, params = rows(240, 4), {"method": "cluster", "folds": 3, "n_init": 2, "test": 0.1, **within}
    kind = Split.variant(params)
    found = []
    for cuts in ([], [5, 5, 100]):
        with TemporaryDirectory() as folder:
            output, metrics = run_operator(
                kind(kind.Params(**params)), split_table(table, cuts), Path(folder), 3
            )
        found.append(output)
        assert metrics["largest_fold"] - metrics["smallest_fold"] <= 1
    assert found[0].equals(found[1])
    fold, part = found[0]["fold"].to_numpy(), np.array(found[0][SPLIT].to_pylist())
    np.testing.assert_array_equal(fold == -1, part == "test")
    np.testing.assert_array_equal(fold == 0, part == "validation")
    kept = fold >= 0
    groups = [str(pair) for pair in zip(table[LABEL].to_pylist(), table["site"].to_pylist(), strict=True)]
    groups = np.array(groups if within else table[LABEL].to_pylist())[kept]
    model = ConstrainedFolds(3, n_init=2, random_state=3).fit(features(table)[kept], groups)
    for name in np.unique(groups):
        counts = np.bincount(fold[kept][groups == name], minlength=3)
        assert counts.max() - counts.min() <= 1
    if not within:
        np.testing.assert_array_equal(fold[kept], model.labels_)
        assert metrics["objective"] == pytest.approx(model.objective_[-1])


def test_more_folds_than_rows_are_named_as_the_recipe_names_them() -> None:
    params = {"method": "cluster", "folds": 9, "test": 0.0}
    with pytest.raises(OperatorError, match=r"operators\.split: folds is 9, and there are 4 rows: lower it"):
        split(params, [rows(4, 0)])


def test_too_many_folds_of_many_rows_are_named() -> None:
    with pytest.raises(OperatorError, match=r"1200 sampled rows .* lower it to 833 or less"):
        split({"method": "cluster", "folds": 900}, [rows(1200, 0)])


def test_two_marginals_keep_their_shares_in_any_shards() -> None:
    table = rows(200, 6).append_column("camera", pa.array([i % 4 for i in range(200)]))
    params = {"method": "cluster", "marginals": ["site", "camera"], "n_init": 2}
    found = [split(params, split_table(table, cuts)) for cuts in ([], [5, 5, 100])]
    assert found[0] == found[1]
    mask, metrics = np.array(found[0][0]) == "validation", found[0][1]
    assert mask.sum() == metrics["validation"] == 40
    for column in ("site", "camera"):
        values = np.array(table[column].to_pylist(), str)
        for value in np.unique(values):
            assert abs(mask[values == value].sum() - 0.2 * (values == value).sum()) < 1
    assert metrics["mmd"] > 1.5 * metrics["mmd_random"]


@pytest.mark.parametrize(
    "params", [{"folds": 4}, {"marginals": ["site", "group"]}], ids=["folds", "marginals"]
)
def test_rows_beyond_the_sample_are_assigned_by_prices(
    params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.splits.sharded.SAMPLE", 300)
    table, params = rows(1500, 7), {"method": "cluster", "n_init": 1, **params}
    found = [split(params, split_table(table, cuts))[0] for cuts in ([], [700])]
    assert found[0] == found[1]
    share = 0.25 if "folds" in params else 0.2
    assert np.mean(np.array(found[0]) == "validation") == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"folds": 3, "validation": 0.2}, "validation is not read beside folds"),
        ({"folds": 3, "tolerance": 0.1}, "tolerance is not read beside folds"),
        ({"marginals": ["a", "b"], "domain": "a"}, "domain is not read beside marginals"),
        ({"folds": 1}, "greater than or equal to 2"),
        ({"marginals": ["a"]}, "marginals"),
    ],
)
def test_bad_programs_are_named(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Split.variant({"method": "cluster"}).Params(method="cluster", **params)


@pytest.mark.slow
def test_a_recipe_reaches_folds_and_marginals(tmp_path: Path) -> None:
    folds = {"method": "cluster", "folds": 4, "n_init": 1}
    table = published(run(small_recipe(tmp_path / "folds", operators={"split": folds})))
    assert set(np.unique(table["fold"].to_numpy())) == {0, 1, 2, 3}
    assert np.ptp(np.bincount(table["fold"].to_numpy())) <= 1
    np.testing.assert_array_equal(
        table["fold"].to_numpy() == 0, np.array(table["split"].to_pylist()) == "validation"
    )
    chosen = {"method": "cluster", "marginals": ["label", "group"], "n_init": 1}
    table = published(run(small_recipe(tmp_path / "marginals", operators={"split": chosen})))
    assert table["split"].to_pylist().count("validation") == round(0.2 * table.num_rows)


@pytest.mark.slow
def test_a_recipe_runs_with_it(tmp_path: Path) -> None:
    chosen = {"method": "cluster", "kernel": "rbf", "n_init": 2, "test": 0.1}
    recipe = small_recipe(tmp_path / "four", operators={"split": chosen})
    few = small_recipe(tmp_path / "one", shards=1, operators={"split": chosen})
    first, second = published(run(recipe)), published(run(few))
    assert first["split"].to_pylist() == second["split"].to_pylist()
    assert first["split"].to_pylist().count("validation") == 48


@pytest.mark.slow
def test_density_weighted_landmarks_come_from_the_graph(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="the operator `neighbours` needs FAISS")
    graph = {"space": "x", "metric": "euclidean", "n_neighbors": 5, "per_class": False}
    chosen = {"method": "cluster", "kernel": "rbf", "landmarks_by": "density", "landmarks": 30, "n_init": 2}
    recipe = small_recipe(tmp_path, operators={"neighbours": graph, "split": chosen})
    assert published(run(recipe))["split"].to_pylist().count("validation") == 48


def test_a_graph_over_gradients_gives_no_landmarks(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text('{"params": {"space": "gradient"}}')
    kind = Split.variant({})
    params = kind.Params(kernel="rbf", landmarks_by="density")
    assert kind(params).uses == ("neighbours",)
    context = Context(MemoryReader([rows(20, 0)]), tmp_path, {"neighbours": tmp_path})
    with pytest.raises(OperatorError, match=r"operators\.neighbours\.space is .* Set it to x"):
        stored_landmarks(params, context)
