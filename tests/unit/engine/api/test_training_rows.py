"""Rows of a published version for other trainers: the published rows, whatever the reader."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rowsieve
from engine.core.errors import InputError
from tests.data import recipe_for, spurious_table, write_shards

polars = pytest.importorskip("polars")
torch = pytest.importorskip("torch")
from torch.utils.data import DataLoader  # noqa: E402

from engine.api.training_rows import _Shipped, _unpacked  # noqa: E402


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> rowsieve.PublishedVersion:
    """A version of 240 rows in three parts, with a validation split."""
    folder = tmp_path_factory.mktemp("trainers")
    write_shards(folder / "data", spurious_table(), 3)
    rowsieve.run(recipe_for(folder / "data", folder / "out"), overrides=["operators.split.validation=0.3"])
    return rowsieve.open(folder / "out")


def _sorted(*columns: Any) -> list[tuple[float, ...]]:
    return sorted(tuple(np.concatenate([np.ravel(c[i]) for c in columns])) for i in range(len(columns[0])))


def test_the_arrays_are_the_published_rows(version: rowsieve.PublishedVersion) -> None:
    frame = version.to_pandas()
    for split in ("train", "validation"):
        rows, mine = version.for_sklearn(split), frame[frame.split == split]
        assert rows.row_id.tolist() == mine.row_id.tolist()
        assert len(rows) == len(mine) > 20
        np.testing.assert_array_equal(rows.sample_weight, mine.weight.astype(np.float64))
        np.testing.assert_array_equal(rows.group, mine.group)
        assert [rows.classes[k] for k in rows.y] == mine.label.tolist()
        assert rows.X.dtype == np.float32
        np.testing.assert_allclose(rows.X[:, 0], mine.a, rtol=1e-6)
        X, y, weight = rows
        assert (X.shape[0], y.shape, weight.shape) == (len(rows), (len(rows),), (len(rows),))


def test_features_of_other_rows_are_those_of_the_version(
    version: rowsieve.PublishedVersion, tmp_path: Path
) -> None:
    """A model that another library has trained on them needs the same columns for the rows of tomorrow."""
    coded = recipe_for(tmp_path / "data", tmp_path / "out")
    texts = np.array(["north", "south", "east"])[np.arange(240) % 3]
    write_shards(tmp_path / "data", spurious_table().append_column("branch office", [texts]), 2)
    coded["operators"] = {"encode": {}, "groups": {"method": "none"}, "weights": {}, "split": {}}
    rowsieve.run(coded)
    for found in (version, rowsieve.open(tmp_path / "out")):
        rows = found.for_sklearn("validation")
        fresh = found.to_pandas(split="validation").drop(columns=["label", "weight"])
        X = found.features(fresh)
        assert X.dtype == np.float32
        np.testing.assert_allclose(X, rows.X, rtol=1e-6)
        assert found.features(fresh[:0]).shape == (0, rows.X.shape[1])
        table = pa.Table.from_pandas(fresh)
        for other_kind in (table, polars.from_pandas(fresh), table.to_reader()):
            np.testing.assert_allclose(found.features(other_kind), rows.X, rtol=1e-6)
        with pytest.raises(InputError, match=r"rows cannot be used: they have the type dict\. Give a pandas"):
            found.features({"a": [1.0]})
        with pytest.raises(InputError, match=r"rows cannot be used: the column 'a' is missing"):
            found.features(fresh.drop(columns=["a"]))
        fresh.loc[2, "a"] = float("inf")
        with pytest.raises(InputError, match=r"Row 2 cannot be used: column 'a' .*repair it"):
            found.features(fresh)
    other = fresh[:2].assign(a=0.0)
    other["branch office"] = "west"  # a value that no row of the version has
    assert found.features(other).shape == (2, rows.X.shape[1])


def test_columns_of_one_split(version: rowsieve.PublishedVersion) -> None:
    frame = version.to_pandas()
    expected = frame[frame.split == "validation"].reset_index(drop=True)
    assert version.to_pandas(split="validation").equals(expected)
    assert version.to_arrow(["a", "weight"], "validation").column_names == ["a", "weight"]
    assert len(version.to_pandas(["a"], "train")) == (frame.split == "train").sum()


@pytest.mark.parametrize("ask", ["for_sklearn", "to_torch", "to_pandas"])
def test_a_split_that_is_not_there_names_the_nearest(ask: str, version: rowsieve.PublishedVersion) -> None:
    with pytest.raises(InputError, match=r"no split 'validaton'.*validation"):
        getattr(version, ask)(split="validaton")


def test_torch_has_the_same_rows(version: rowsieve.PublishedVersion) -> None:
    rows = version.for_sklearn()
    x, y, weight = version.to_torch().tensors  # type: ignore[attr-defined]
    np.testing.assert_array_equal(x.numpy(), rows.X)
    np.testing.assert_array_equal(y.numpy(), rows.y)
    np.testing.assert_array_equal(weight.numpy(), rows.sample_weight.astype(np.float32))


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_batches_are_the_rows_in_another_order_in_every_pass(
    workers: int, version: rowsieve.PublishedVersion
) -> None:
    rows = version.for_sklearn()
    stream = version.to_torch(streaming=True, batch_size=7, seed=3)
    torch.manual_seed(0)
    passes = []
    for _ in range(2):
        batches = list(DataLoader(stream, batch_size=None, num_workers=workers))
        assert max(len(batch[1]) for batch in batches) == 7
        passes.append([torch.cat(column).numpy() for column in zip(*batches, strict=True)])
    expected = _sorted(rows.X, rows.y, rows.sample_weight.astype(np.float32))
    assert _sorted(*passes[0]) == _sorted(*passes[1]) == expected
    assert not np.array_equal(passes[0][0], passes[1][0])
    if workers:
        kept = DataLoader(stream, batch_size=None, num_workers=workers, persistent_workers=True)
        first, second = (torch.cat([batch[0] for batch in kept]).numpy() for _ in range(2))
        assert not np.array_equal(first, second)
    else:
        again = version.to_torch(streaming=True, batch_size=7, seed=3)
        first = torch.cat([batch[0] for batch in again]).numpy()  # type: ignore[attr-defined]
        np.testing.assert_array_equal(first, passes[0][0])


def test_ray_workers_need_no_folder_of_the_driver(version: rowsieve.PublishedVersion) -> None:
    reader = version._readers.of("train")
    state = reader.maker.state
    files = tuple((p.name, p.read_bytes()) for p in sorted(state.iterdir()) if p.is_file())
    shipped = pickle.loads(pickle.dumps(_Shipped(reader, files)))
    found = _unpacked(shipped)[0]
    assert found.maker.state != state
    np.testing.assert_array_equal(found.read_all().X, reader.read_all().X)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_ray_has_the_same_rows(version: rowsieve.PublishedVersion) -> None:
    rows = version.for_sklearn()
    found = version.to_ray().take_batch(len(rows))
    order = np.argsort(found["row_id"])
    np.testing.assert_array_equal(found["row_id"][order], rows.row_id)
    np.testing.assert_array_equal(found["x"][order], rows.X)
    np.testing.assert_array_equal(found["weight"][order], rows.sample_weight)


def test_the_folder_of_features_goes_with_the_version(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table(), 1)
    rowsieve.run(recipe_for(tmp_path / "data", tmp_path / "out"))
    found = rowsieve.open(tmp_path / "out")
    folder = found._readers.of("train").maker.state
    assert folder.is_dir()
    del found
    assert not folder.exists()


def test_a_batch_has_rows(version: rowsieve.PublishedVersion) -> None:
    with pytest.raises(InputError, match=r"batch_size is 0\. Give 1 or more"):
        version.to_torch(streaming=True, batch_size=0)
