"""The groups operator: the kernel's labels whatever the shards, small state, clear errors."""

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from engine.execution.local_executor import LocalExecutor
from operators.base import CATEGORY, VECTOR, Context, OperatorError, Resources
from operators.grasp import GroupInference
from operators.grasp.adaptor import Groups, _silhouettes
from operators.grasp.class_model import ClassModel
from operators.grasp.kernel import infer_class
from operators.grasp.params import GroupsParams
from operators.grasp.rows_on_disk import drawn_rows, may_be_drawn
from operators.grasp.selection import MIN_SAMPLES_GRID
from operators.groups import state as state_module
from operators.groups.base import gather_class
from operators.groups.sorted_shards import FOLDER, class_gatherer, count_rows
from tests.data import cut
from tests.unit.in_memory import PicklingExecutor, SortedReader, class_context

NAMES = ["cat", "dog!", "empty", "lone"]
PARAMS = GroupsParams(min_samples=[5, 10], eps=[0.02, 0.05, 0.08], min_rows=0, stability=0)


def rows(seed: int = 0) -> pa.Table:
    """300 rows of two classes, clusters and scattered; one row of a class of its own; gaps in row ids."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 301).astype(np.int32)
    y[77] = 3
    centres = 3 * rng.normal(size=(3, 4))
    X = centres[rng.choice(3, 301, p=[0.7, 0.2, 0.1])] + 0.5 * rng.normal(size=(301, 4))
    X[::20] = 3 * rng.normal(size=(16, 4))
    ids = np.sort(rng.choice(1000, 301, replace=False)).astype(np.int64)
    gradient = pa.array(X.astype(np.float32).tolist(), VECTOR)
    return pa.table({"row_id": ids, "y": y, "gradient": gradient})


def context_for(tables: Sequence[pa.Table], folder: Path, seed: int = 0) -> Context:
    return class_context(tables, folder, "groups", NAMES, seed)


def run(tables: Sequence[pa.Table], folder: Path, params: GroupsParams = PARAMS) -> tuple[pa.Table, Any]:
    operator, context, here = Groups(params), context_for(tables, folder), PicklingExecutor()
    metrics = operator.fit(context, here)  # type: ignore[arg-type]
    apply = operator.open(context)
    found = [apply(context.shards.read(s, operator.requires)) for s in range(len(tables))]
    return pa.concat_tables(found), metrics


def kernel(table: pa.Table, params: GroupsParams = PARAMS) -> GroupInference:
    X = np.array(table.column("gradient").to_pylist(), np.float32)
    inference = GroupInference(params.metric, params.eps, params.min_samples, random_state=0, min_rows=0)
    return inference.fit(X, table.column("y").to_numpy())


@pytest.mark.parametrize("n_shards", [1, 3, 7])
def test_same_labels_as_the_kernel_whatever_the_shards(
    n_shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "LABEL_ROWS", 16)
    table = rows()
    expected = kernel(table)
    found, metrics = run([*cut(table, n_shards), table.slice(0, 0)], tmp_path)
    group = found.column("group").to_numpy()
    np.testing.assert_array_equal(group, expected.labels_)
    assert len(np.unique(group)) > 4
    noise = expected.labels_ == -1
    assert noise.any()
    assert found.column("group_outlier").to_pylist() == ["grasp:noise" if n else "" for n in noise]
    assert found.schema.types == [field.type for field in Groups(PARAMS).adds] == [pa.int32(), CATEGORY]
    assert metrics == {
        "groups": float(expected.labels_.max() + 1),
        "outlier_share": noise.mean(),
        "silhouette_class_cat": expected.selection_[0].silhouette,
        "silhouette_class_dog_": expected.selection_[1].silhouette,
        "silhouette_class_lone": -1.0,
    }


def test_state_holds_sorted_labels_models_and_the_selection(tmp_path: Path) -> None:
    table = rows()
    expected = kernel(table)
    run(cut(table, 3)[::-1], tmp_path)
    state = tmp_path / "groups"
    assert {p.name for p in state.iterdir()} == {
        *(f"labels-{c}.parquet" for c in (0, 1, 3)),
        *(f"model-{c}.npz" for c in (0, 1, 3)),
        *(f"grid-{c}" for c in (0, 1, 3)),
        "groups.json",
        "selection.json",
    }
    record = json.loads((state / "selection.json").read_text())
    assert [(c["class"], c["name"]) for c in record["classes"]] == [(0, "cat"), (1, "dog!"), (3, "lone")]
    y = table.column("y").to_numpy()
    for entry in record["classes"]:
        value = entry["class"]
        pick = expected.selection_[value]
        assert entry["offset"] == expected.offsets_[value]
        assert (entry["eps"], entry["min_samples"]) == (pick.eps, pick.min_samples)
        np.testing.assert_allclose(entry["scores"], pick.scores)
        assert (entry["eps_grid"], entry["min_samples_grid"]) == ([0.02, 0.05, 0.08], [5, 10])
        assert (entry["n_rows"], entry["n_noise"]) == ((y == value).sum(), pick.n_noise)
        labels = pq.read_table(state / f"labels-{value}.parquet")
        assert labels.schema == pa.schema({"row_id": pa.int64(), "label": pa.int32()})
        np.testing.assert_array_equal(labels.column("row_id"), table.column("row_id").to_numpy()[y == value])
        model = ClassModel.load(state / f"model-{value}.npz")
        X = np.array(table.column("gradient").to_pylist(), np.float32)[y == value]
        np.testing.assert_array_equal(model.assign(X), expected.models_[value].assign(X))


def test_only_small_values_come_back_and_only_needed_shards_are_read(tmp_path: Path) -> None:
    table = rows()
    tables = [table.filter(pa.array(table.column("y").to_numpy() == c)) for c in (0, 1, 3)]
    context, here = context_for(tables, tmp_path), PicklingExecutor()
    Groups(PARAMS).fit(context, here)  # type: ignore[arg-type]
    assert all(len(pickle.dumps(value)) < 3000 for value in here.returned)
    reader = SortedReader(tables)
    row_ids, columns = gather_class(reader, 3, ["gradient"])
    assert [read for read in reader.reads if "gradient" in read[1]] == [(2, ("gradient",))]
    assert (len(row_ids), columns["gradient"].shape) == (1, (1, 4))


def test_many_classes_are_sorted_in_one_pass_and_give_the_same_groups(tmp_path: Path) -> None:
    """40 classes in each of 5 shards: as many reads as shards, and the result of one shard."""
    rng = np.random.default_rng(0)
    n, names = 2000, [str(i) for i in range(40)]
    X = rng.normal(size=(n, 3)).astype(np.float32) + 4 * rng.integers(0, 2, (n, 1)).astype(np.float32)
    vectors = pa.array(X.tolist(), VECTOR)
    table = pa.table({"row_id": np.arange(n), "y": (np.arange(n) % 40).astype(np.int32), "gradient": vectors})
    found = []
    for name, tables in (("one", [table]), ("five", cut(table, 5)[::-1])):
        context = class_context(tables, tmp_path / name, "groups", names, 0)
        reader = SortedReader(tables)
        operator = Groups(PARAMS)
        operator.fit(replace(context, shards=reader), LocalExecutor())
        assert len([read for read in reader.reads if "gradient" in read[1]]) == len(tables)
        assert not (context.state / FOLDER).exists()
        labels = [pq.read_table(context.state / f"labels-{i}.parquet") for i in range(40)]
        found.append((pa.concat_tables(labels), (context.state / "selection.json").read_bytes()))
    assert found[0][0].equals(found[1][0])
    assert found[0][1] == found[1][1]


def test_sorted_shards_are_read_as_shards_are(tmp_path: Path) -> None:
    table = rows()
    tables = [*cut(table, 3)[::-1], table.slice(0, 0)]
    counts = count_rows(SortedReader(tables), lambda fn, items: map(fn, items), 4)
    reader = SortedReader(tables)
    sort: Any = {"columns": ["gradient", "y"], "counts": counts, "state": tmp_path}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("operators.groups.sorted_shards.READS", 0)
        gather = class_gatherer(reader, lambda fn, items: map(fn, items), **sort)
    assert len(reader.reads) == 4
    for index in range(4):
        ids, columns = gather(index)
        expected_ids, expected = gather_class(SortedReader(tables), index, ["gradient", "y"])
        np.testing.assert_array_equal(ids, expected_ids)
        assert columns.keys() == expected.keys()
        for name in columns:
            np.testing.assert_array_equal(columns[name], expected[name])
            assert columns[name].dtype == expected[name].dtype


def test_noise_need_not_be_judged(tmp_path: Path) -> None:
    table = rows()
    params = PARAMS.model_copy(update={"outliers": "none"})
    found, metrics = run([table], tmp_path, params)
    assert -1 in found.column("group").to_pylist()
    assert set(found.column("group_outlier").to_pylist()) == {""}
    assert metrics["outlier_share"] == 0


def test_rows_that_fit_did_not_see_are_named(tmp_path: Path) -> None:
    table = rows()
    operator, context = Groups(PARAMS), context_for([table], tmp_path)
    operator.fit(context, PicklingExecutor())  # type: ignore[arg-type]
    moved = table.slice(0, 4).set_column(0, "row_id", pa.array([5000, 5001, 5002, 5003], pa.int64()))
    with pytest.raises(OperatorError, match=r"no label for row_id 500\d"):
        operator.open(context)(moved)


def test_gradients_of_two_lengths_are_an_error(tmp_path: Path) -> None:
    table = rows()
    short = pa.table(
        {"row_id": [2000], "y": pa.array([0], pa.int32()), "gradient": pa.array([[1.0]], VECTOR)}
    )
    with pytest.raises(OperatorError, match="s1: 'gradient' has 1 entries, in earlier shards 4"):
        run([table, short], tmp_path)


def test_no_rows_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no class has a row"):
        run([rows().slice(0, 0)], tmp_path)


WRONG: list[dict[str, Any]] = [
    {"eps": 0},
    {"eps": []},
    {"min_samples": [0]},
    {"min_samples": 1.5},
    {"min_rows": -1},
    {"min_share": 0.6},
    {"fit_rows": 5},
    {"stability": -1},
    {"preset": "paper"},
    {"metric": "l1"},
    {"epss": 1},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_bad_parameters_are_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        GroupsParams(**wrong)


def test_parameters_default_to_the_papers_radii_and_a_preset_is_the_paper() -> None:
    params = GroupsParams()
    assert (params.eps[0], params.eps[-1], len(params.eps)) == (0.1, 0.7, 13)  # type: ignore[index,arg-type]
    assert GroupsParams(eps=0.3, min_samples=5).eps == 0.3
    paper = GroupsParams(preset="grasp_paper")
    assert (paper.min_samples, paper.select) == (list(MIN_SAMPLES_GRID), "silhouette")
    assert (paper.min_rows, paper.min_share, paper.fit_rows, paper.stability) == (0, 0, None, 0)
    assert GroupsParams(preset="grasp_paper", select="coverage").select == "coverage"
    assert [GroupsParams(neighbours=kind).rows_to_fit() for kind in ("exact", "hnsw")] == [10_000, None]
    assert Groups(params).resources == Resources()


def test_planning_imports_no_heavy_library() -> None:
    code = (
        "import sys, operators.grasp.adaptor; "
        "print([m for m in ('torch', 'sklearn', 'scipy', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def numbered() -> pa.Table:
    """The rows with ids 0 to 300, as the estimator numbers them."""
    table = rows()
    return table.set_column(0, "row_id", pa.array(range(table.num_rows), pa.int64()))


@pytest.mark.parametrize("min_rows", [0, 40])
@pytest.mark.parametrize("n_shards", [1, 2, 7])
def test_a_class_clustered_on_drawn_rows_is_placed_whole(
    n_shards: int, min_rows: int, tmp_path: Path
) -> None:
    table, params = numbered(), PARAMS.model_copy(update={"fit_rows": 100, "min_rows": min_rows})
    found, metrics = run([*cut(table, n_shards), table.slice(0, 0)][::-1], tmp_path, params)
    X, y = np.array(table.column("gradient").to_pylist(), np.float32), table.column("y").to_numpy()
    expected = GroupInference(
        params.metric, params.eps, params.min_samples, random_state=0, fit_rows=100, min_rows=min_rows
    ).fit(X, y)
    parts = [table.slice(0, 0), *reversed(cut(table, n_shards))]
    order = np.argsort(np.concatenate([part.column("row_id").to_numpy() for part in parts]))
    assert found.column("group").to_numpy()[order].tolist() == expected.labels_.tolist()
    assert np.array_equal(expected.predict(X[y < 2], y[y < 2]), expected.labels_[y < 2])
    assert metrics["outlier_share"] == np.mean(expected.labels_ == -1)
    state = tmp_path / "groups"
    records = {r["class"]: r for r in json.loads((state / "selection.json").read_text())["classes"]}
    sizes = np.bincount(y)
    drawn = {index: (record["n_rows"], record["drawn_from"]) for index, record in records.items()}
    assert drawn == {0: (100, sizes[0]), 1: (100, sizes[1]), 3: (1, 0)}
    for index, record in records.items():
        own = expected.labels_[y == index]
        assert record["sizes"] == np.bincount(own[own >= 0] - record["offset"]).tolist()
        assert record["n_noise"] == np.count_nonzero(own == -1)
        assert len(record["sizes"]) == 1 or min(record["sizes"]) >= min_rows
    assert len(records[0]["group_of"]) > 2
    assert (len(records[0]["sizes"]) < len(records[0]["group_of"])) == (min_rows > 0)
    assert not list(state.glob("drawn-*"))


def test_few_rows_of_each_shard_are_put_down(tmp_path: Path) -> None:
    """A draw takes the rows with the smallest hashes, whatever else the shards' bounds let through."""
    ids = np.random.default_rng(0).choice(10**9, 5_000, replace=False).astype(np.int64)
    drawn = drawn_rows(ids, 300, seed=4)
    assert len(drawn) == 300
    assert (np.diff(drawn) > 0).all()
    kept = may_be_drawn(ids, 5_000, 300, seed=4)
    assert 300 <= len(kept) < 500
    assert np.array_equal(kept[drawn_rows(ids[kept], 300, seed=4)], drawn)
    assert not np.array_equal(drawn_rows(ids, 300, seed=5), drawn)
    assert np.array_equal(drawn_rows(ids[:7], 300, seed=4), np.arange(7))


def test_drawn_rows_are_those_of_one_draw(tmp_path: Path) -> None:
    """The model of a drawn class is that of the kernel on just these rows."""
    table, params = rows(), GroupsParams(min_samples=5, eps=0.05, fit_rows=100, min_rows=0)
    run(cut(table, 5), tmp_path, params)
    own = np.flatnonzero(table.column("y").to_numpy() == 1)
    X = np.array(table.column("gradient").to_pylist(), np.float32)[own]
    drawn = drawn_rows(table.column("row_id").to_numpy()[own], 100, 0)
    _, _, model = infer_class(X[drawn], eps_grid=0.05, min_samples_grid=5, random_state=0)
    stored = ClassModel.load(tmp_path / "groups" / "model-1.npz")
    assert np.array_equal(stored.cores, model.cores)
    assert np.array_equal(stored.labels, model.labels)


def test_classes_whose_names_look_alike_have_metrics_of_their_own() -> None:
    records = [
        {"name": name, "class": index, "silhouette": index / 10}
        for index, name in enumerate(["<=5", ">=5", "rare"])
    ]
    assert _silhouettes(records) == {
        "silhouette_class___5_0": 0.0,
        "silhouette_class___5_1": 0.1,
        "silhouette_class_rare": 0.2,
    }
