"""Lists of texts get the features of scikit-learn's ``MultiLabelBinarizer``, for any number of shards."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.preprocessing import MultiLabelBinarizer

from operators.base import OperatorError
from operators.descriptions.table_views import views_of
from operators.encode import kinds, sketches
from operators.encode.column_forms import Form, form_of
from operators.encode.column_use import Kind, KindOptions, Unused
from operators.encode.kinds import decide_kind
from operators.encode.sketches import ValueCounts
from operators.encode.summary import summarise
from operators.encode.tags import choose_tags, read_tags
from tests.unit.operators.encode.test_encodings import N, encoded, labels, same_for_all_shards

NAMES = ["red", "green", "blue", "rare", "ünïque"]
SHARES = np.array([0.5, 0.3, 0.2, 0.01, 0.002])
DEFAULTS = {"strip": True, "fold_case": False, "missing": ("", "?")}


def lists(seed=0, n=N):
    rng = np.random.default_rng(seed)
    return [[name for name, p in zip(NAMES, SHARES, strict=True) if rng.random() < p] for _ in range(n)]


def table_of(column, n=N):
    rng = np.random.default_rng(1)
    given = column if isinstance(column, pa.Array) else pa.array(column, pa.list_(pa.string()))
    return pa.table({"tags": given, "age": rng.normal(size=n), "y": rng.choice(["a", "b"], n)})


def test_features_are_multi_label_binarizers(tmp_path):
    rows = lists()
    x, state = same_for_all_shards(table_of(rows), tmp_path, "tags", categorical={"min_share": 0})
    theirs = MultiLabelBinarizer()
    np.testing.assert_array_equal(x, theirs.fit_transform(rows))
    assert labels(state) == [f"tags: {name}" for name in theirs.classes_]
    assert {output.source for output in state.outputs} == {"tags"}


def test_infrequent_entries_share_a_feature_and_missing_lists_have_one(tmp_path):
    rows = [row if k % 10 else None for k, row in enumerate(lists())]
    x, state = same_for_all_shards(table_of(rows), tmp_path, "tags", columns={"tags": {"min_share": 0.05}})
    told = ["tags: blue", "tags: green", "tags: red", "tags: an infrequent entry", "tags is missing"]
    expected = [[int(name in (row or ())) for name in ("blue", "green", "red")] for row in rows]
    expected = [
        [*cells, int(any(name in ("rare", "ünïque") for name in row or ())), int(row is None)]
        for cells, row in zip(expected, rows, strict=True)
    ]
    if "tags: an infrequent entry" not in labels(state):  # they are too few together
        told.remove("tags: an infrequent entry")
        expected = [[*cells[:3], cells[4]] for cells in expected]
    assert labels(state) == told
    np.testing.assert_array_equal(x, expected)


def test_the_most_frequent_entries_are_kept(tmp_path):
    x, state = same_for_all_shards(table_of(lists()), tmp_path, "tags", categorical={"max_columns": 3})
    assert labels(state) == ["tags: green", "tags: red", "tags: an infrequent entry"]
    assert x[:, 2].sum() == sum(bool({"blue", "rare", "ünïque"} & set(row)) for row in lists())


def test_entries_under_a_null_list_are_none():
    """Arrow keeps them in ``pc.if_else``; they ended the run with an IndexError."""
    entries = pa.array(["a", "b", "x", "c"])
    column = pa.ListArray.from_arrays([0, 2, 3, 4], entries, mask=pa.array([False, True, False]))
    texts, rows, places = read_tags(pa.chunked_array([column]), **DEFAULTS)
    pairs = zip(rows.tolist(), texts.take(pa.array(places)).to_pylist(), strict=True)
    assert list(pairs) == [(0, "a"), (0, "b"), (2, "c")]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.large_string()),
        pa.large_list(pa.string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_every_type_of_list_is_the_same(kind, tmp_path):
    rows = lists()
    plain, _ = encoded(table_of(rows), 2, tmp_path / "a", "tags")
    typed, _ = encoded(table_of(pa.array(rows, kind)), 2, tmp_path / "b", "tags")
    np.testing.assert_array_equal(plain, typed)
    assert form_of(kind) == Form.TAGS


def test_entries_are_tidied_and_count_once():
    column = pa.chunked_array([[[" a", "a ", None, "?", "B"], None], [[], ["b", ""]]])
    texts, rows, places = read_tags(column, **DEFAULTS)
    assert [(row, texts[place].as_py()) for row, place in zip(rows, places.tolist(), strict=True)] == [
        (0, "a"),
        (0, "B"),
        (3, "b"),
    ]
    texts, rows, places = read_tags(column, **{**DEFAULTS, "fold_case": True})
    assert [(row, texts[place].as_py()) for row, place in zip(rows, places.tolist(), strict=True)] == [
        (0, "a"),
        (0, "b"),
        (3, "b"),
    ]


def test_new_rows_may_have_new_entries_or_no_column_at_all(tmp_path):
    _, state = encoded(table_of(lists()), 1, tmp_path, "tags")
    column = [["red", "never seen"], [], None]
    x, codes = state.transform(pa.table({"tags": pa.array(column, pa.list_(pa.string()))}))
    red = labels(state).index("tags: red")
    assert x[:, red].tolist() == [1, 0, 0]
    assert x.sum() == 1
    assert not codes.any()
    x, _ = state.transform(pa.table({"tags": pa.nulls(2)}))
    assert not x.any()


def used(column, **options):
    summary = summarise(pa.table({"tags": pa.array(column, pa.list_(pa.string()))}))["tags"]
    return decide_kind(summary, KindOptions(**options))


def test_kinds():
    assert used(lists()).kind == Kind.TAGS
    assert used(lists(), kind=Kind.TAGS).kind == Kind.TAGS
    assert used([[]] * 60).reason == Unused.CONSTANT
    assert used([["a", "b"]] * 60).reason == Unused.CONSTANT
    assert used([None] * 60).reason == Unused.MISSING
    assert used([["a"], []] * 30).kind == Kind.TAGS
    with pytest.raises(OperatorError, match="'tags' cannot be categorical"):
        used(lists(), kind=Kind.CATEGORICAL)


def test_too_many_entries_are_named(monkeypatch):
    monkeypatch.setattr(sketches, "MAX_VALUES", 3)
    monkeypatch.setattr(kinds, "MAX_VALUES", 3)
    found = used(lists())
    assert found.reason == Unused.TYPE
    assert "more than 3 distinct entries" in found.note


def test_an_entry_of_every_row_gets_no_feature():
    counted = ValueCounts.of(pa.array(["a", "b"]), [10, 4])
    assert choose_tags(counted.values, counted.counts, 10, min_share=0, max_columns=9) == (
        ("b",),
        False,
        ("a",),
    )


def test_an_entry_of_every_row_is_no_infrequent_one(tmp_path):
    rows = [["all", *(["red"] * (k % 5 < 2)), *([f"rare{k}"] * (k % 10 == 0))] for k in range(400)]
    x, state = same_for_all_shards(table_of(rows, 400), tmp_path, "tags")
    assert labels(state) == ["tags: red", "tags: an infrequent entry"]
    assert x.mean(axis=0) == pytest.approx([0.4, 0.1])


def test_rules_mention_entries():
    rows = lists(n=400)
    (view,) = views_of(table_of(rows, 400).select(["tags"]), np.arange(400) < 200)
    condition = view.condition(view.terms.index("red"), 0.5, left=False, missing=False)
    assert condition.text == 'tags mentions "red"'
    assert view.holds(condition).tolist() == ["red" in row for row in rows]
