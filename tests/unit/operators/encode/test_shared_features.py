"""The bound on the features of all columns of categories: which are kept, for any number of shards."""

import numpy as np
import pyarrow as pa
import pytest

from operators.encode import shared_features
from operators.encode.adaptor import Encode
from operators.encode.params import EncodeParams
from operators.encode.shared_features import LIMITED, MAX_FEATURES, OWN_FEATURES, shared_limits
from tests.unit.operators.encode.test_encodings import encoded, labels, same_for_all_shards

N = 1200


def column(name: str, n_values: int, skewed: int = 1) -> list[str]:
    """Return N texts of ``n_values`` values; every ``skewed``-th row has the first one."""
    return [f"{name}{0 if row % skewed == 1 else row * 7 // 2 % n_values:02d}" for row in range(N)]


TABLE = pa.table(
    {
        "even": column("e", 12),
        "skewed": column("s", 12, skewed=2),
        "small": column("m", 3),
        "y": ["no" if row % 5 else "yes" for row in range(N)],
    }
)
COLUMNS = ("even", "skewed", "small")


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(shared_features, "MAX_FEATURES", 20)
    monkeypatch.setattr(shared_features, "OWN_FEATURES", 4)


def test_the_categories_with_the_most_rows_are_kept_beyond_those_of_each_column(few, tmp_path):
    """27 features alone; of ``even`` each value has 100 rows, of ``skewed`` all but one 50."""
    _, state = same_for_all_shards(TABLE, tmp_path, *COLUMNS, categorical={"rare": "bucket"})
    assert state.about[LIMITED] == {"skewed": [5, 12]}
    assert labels(state)[:12] == [f"even = e{k:02d}" for k in range(12)]
    assert labels(state)[12:17] == [*(f"skewed = s{k:02d}" for k in (0, 9, 10, 11)), "skewed is infrequent"]
    assert len(labels(state)) == 20


def test_categories_beyond_the_limit_get_class_shares_where_they_are_many(few, tmp_path):
    _, state = same_for_all_shards(TABLE, tmp_path, *COLUMNS)
    assert [label for label in labels(state) if "share of" in label] == ["skewed: share of yes"]


def test_a_number_in_the_recipe_keeps_the_features_of_a_column(few, tmp_path):
    _, state = encoded(TABLE, 2, tmp_path, *COLUMNS, columns={"skewed": {"max_columns": 13}})
    assert LIMITED not in state.about
    assert sum(label.startswith("skewed = ") for label in labels(state)) == 12


def test_run_and_report_name_the_columns_with_fewer_features(few, tmp_path):
    encoded(TABLE, 2, tmp_path, *COLUMNS)
    operator = Encode(EncodeParams(features=COLUMNS))
    (said,) = operator.warnings({"limited": 1.0}, lambda: tmp_path)
    assert "more than 20 features together" in said
    assert said.endswith("skewed (12 -> 5). To keep those of a column: operators.encode.columns: "
                         "`skewed: {max_columns: 13}`.")  # fmt: skip
    assert operator.warnings({}, lambda: tmp_path) == ()


def test_tables_within_the_bound_are_as_they_were(tmp_path):
    """Without the bound no column is limited, and the state does not mention it."""
    _, state = encoded(TABLE, 1, tmp_path, *COLUMNS)
    assert LIMITED not in state.about
    ordinary = {f"c{k}": np.full(64, 100) for k in range(MAX_FEATURES // 64)}
    assert shared_limits(ordinary) == {}
    many = {f"c{k}": np.full(OWN_FEATURES, 100) for k in range(MAX_FEATURES)}
    assert shared_limits(many) == {}


def test_equal_columns_share_alike():
    found = shared_limits({f"c{k}": np.full(95, 100) for k in range(40)})
    assert found == {f"c{k}": 50 for k in range(40)}
    assert shared_limits({f"c{k}": np.full(95, 100) for k in range(100)}) == {f"c{k}": 30 for k in range(100)}
