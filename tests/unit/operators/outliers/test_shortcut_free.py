"""A verdict that does not rest on known shortcuts: the map that takes them out, and what is marked."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from operators.base import FEATURES, IS_OUTLIER, LABEL, Operator
from operators.columns import numpy_to_vectors
from operators.cues import CueSettings, robust_weights
from operators.cues.adaptor import Cues
from operators.cues.params import CuesParams
from operators.cues.serialise import save_state as save_cues
from operators.cues.settings import Named
from operators.cues.shortcut_scores import shortcut_scores
from operators.encode.adaptor import Encode
from operators.encode.params import EncodeParams
from operators.ingest.adaptor import Ingest
from operators.ingest.params import IngestParams
from operators.outliers.adaptor import Outliers
from operators.outliers.assessment import assess
from operators.outliers.mixture import damage_prevalence
from operators.outliers.params import OutliersParams
from operators.outliers.planted import KINDS
from operators.outliers.report import evidence_section
from operators.outliers.shortcut_free import breaks_shortcut, fit_eraser
from operators.outliers.state import forget_row_ids, load_state, save_state
from operators.outliers.verdict import NoEvidenceError, VerdictState, fit
from tests.unit.few_trees import learn_from_few_trees
from tests.unit.in_memory import run_operator, split_table

Floats = npt.NDArray[np.float64]


class Cue(NamedTuple):
    """Rows whose label a cue gives away, spread over all features, beside content that says it weakly."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    score: Floats
    """(n, 1) the cue, a linear function of the features."""
    breaks: npt.NDArray[np.bool_]


@cache
def made(strength: float = 0.2, seed: int = 0) -> Cue:
    rng = np.random.default_rng(seed)
    n, d = 1200, 120
    y = rng.integers(0, 2, n)
    breaks = rng.random(n) < 0.08
    cue = np.where(breaks, 1 - y, y) * 2.0 - 1
    Z = np.column_stack([3 * cue, rng.normal(size=(n, d - 1))])
    Z[:, 0] += 0.3 * rng.normal(size=n)
    Z[:, 1:4] += strength * (2.0 * y[:, None] - 1)
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return Cue((Z @ turn).astype(np.float32), y, np.arange(n) * 3, Z[:, :1], breaks)


@cache
def flipped(strength: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Labels of which a twentieth is wrong, and which ones."""
    rows = made(strength)
    wrong = np.random.default_rng(1).random(len(rows.y)) < 0.05
    return np.where(wrong, 1 - rows.y, rows.y), wrong


@cache
def learnt(strength: float, known: bool) -> VerdictState:
    rows, (y, _) = made(strength), flipped(strength)
    return fit(rows.X, y, rows.ids, shortcuts=rows.score if known else rows.score[:, :0])


def within(Z: Floats, y: npt.NDArray[np.int64]) -> Floats:
    """Return rows less the mean of their class."""
    means = np.stack([Z[y == c].mean(axis=0) for c in range(2)])
    return np.asarray(Z - means[y], np.float64)


def test_no_feature_is_correlated_with_the_shortcut_within_the_classes_and_the_rest_stays() -> None:
    rows = made()
    Z = fit_eraser(rows.X, rows.y, rows.score)(rows.X).astype(np.float64)
    assert np.abs(within(Z, rows.y).T @ within(rows.score, rows.y)).max() / len(Z) < 1e-5
    standard = (rows.X - rows.X.mean(axis=0)) / rows.X.std(axis=0)
    assert np.linalg.matrix_rank(Z - standard, tol=1e-2) == 1


def test_two_scores_of_one_shortcut_take_out_one_direction() -> None:
    rows = made()
    once, twice = (
        fit_eraser(rows.X, rows.y, np.repeat(rows.score, times, axis=1))(rows.X) for times in (1, 2)
    )
    np.testing.assert_allclose(once, twice, atol=1e-4)
    constant = np.zeros_like(rows.score)
    assert fit_eraser(rows.X, rows.y, constant).read.shape[1] == 0


@pytest.mark.slow
def test_rows_that_break_a_known_shortcut_are_not_marked_where_nothing_else_tells() -> None:
    rows, (y, wrong) = made(), flipped(0.2)
    before, after = (assess(learnt(0.2, known), rows.X, y, rows.ids) for known in (False, True))
    assert before.is_outlier[rows.breaks & ~wrong].mean() > 0.5
    assert after.is_outlier[rows.breaks & ~wrong].mean() < 0.02
    np.testing.assert_array_equal(after.score, before.score)


def test_flips_that_other_features_contradict_are_still_marked() -> None:
    rows, (y, wrong) = made(2.5), flipped(2.5)
    marked = assess(learnt(2.5, True), rows.X, y, rows.ids).is_outlier
    assert marked[wrong].mean() > 0.5
    assert marked[rows.breaks & ~wrong].mean() < 0.05
    assert wrong[marked].mean() > 0.8


def test_a_row_is_judged_the_same_by_itself_and_after_the_state_was_stored(tmp_path: Path) -> None:
    rows, (y, _), state = made(2.5), flipped(2.5), learnt(2.5, True)
    save_state(state, tmp_path)
    stored = load_state(tmp_path)
    assert stored is not None
    together = assess(state, rows.X, y, rows.ids)
    order = np.random.default_rng(2).permutation(len(y))
    for part in np.array_split(order, 7):
        found = assess(stored, rows.X[part], y[part], rows.ids[part])
        np.testing.assert_array_equal(found.is_outlier, together.is_outlier[part])
        np.testing.assert_array_equal(found.posterior, together.posterior[part])
    forget_row_ids(tmp_path)
    forgotten = load_state(tmp_path)
    assert forgotten is not None
    for one in (forgotten, forgotten.shortcut_free):
        assert one is not None
        assert (one.sample_ids == -1).all()


def test_without_shortcuts_there_is_one_verdict() -> None:
    rows, first = made(2.5), slice(400)
    state = fit(rows.X[first, :20], rows.y[first], rows.ids[first], shortcuts=rows.score[first, :0])
    assert state.shortcut_free is None
    assert learnt(2.5, True).shortcut_free is not None


def test_features_that_hold_nothing_but_the_shortcut_give_no_evidence() -> None:
    rows = made()
    X = rows.score.astype(np.float32)
    with pytest.raises(NoEvidenceError, match="without the known shortcuts"):
        fit(X, rows.y, rows.ids, shortcuts=X.astype(np.float64))


def test_the_operator_takes_out_what_cues_balances_whatever_the_shards(tmp_path: Path) -> None:
    rows, (y, wrong) = made(), flipped(0.2)
    X = np.column_stack([rows.X, rows.score[:, 0]]).astype(np.float32)
    settings = CueSettings(spurious=(Named((X.shape[1] - 1,)),))
    cues = robust_weights.fit(X, y, rows.ids, settings)
    (tmp_path / "cues").mkdir()
    save_cues(cues, tmp_path / "cues")
    np.testing.assert_allclose(
        np.corrcoef(shortcut_scores(tmp_path / "cues", X)[:, 0], rows.score[:, 0])[0, 1], 1, atol=1e-6
    )
    table = pa.table({LABEL: pa.array(y, pa.int32()), FEATURES: numpy_to_vectors(X)})
    operator = Outliers(OutliersParams(rule="evidence"), ["evidence"], ["cues"], with_words=True)
    found = []
    with learn_from_few_trees():  # which learns once from the same rows
        for k, cuts in enumerate(([], [100, 101, 900])):
            (tmp_path / str(k)).mkdir()
            states = {"cues": tmp_path / "cues"}
            result, _ = run_operator(operator, split_table(table, cuts), tmp_path / str(k), states=states)
            found.append(result)
    assert found[0].equals(found[1])
    marked = found[0][IS_OUTLIER].to_numpy()
    assert marked[rows.breaks & ~wrong].mean() < 0.02
    section = evidence_section(tmp_path / "0", {kind: kind for kind in KINDS}, ["no", "yes"], None)
    assert "too: a row that merely breaks one" in str(section.content[0])


def test_no_shortcut_is_taken_out_where_none_is_balanced(tmp_path: Path) -> None:
    rows = made()
    save_cues(robust_weights.fit(rows.X, rows.y, rows.ids, CueSettings()), tmp_path)
    assert shortcut_scores(tmp_path, rows.X).shape == (len(rows.y), 0)


def test_rows_that_break_a_shortcut_do_not_confirm_that_features_are_damaged() -> None:
    """A rare value lies far from all others, and the label contradicts it where it breaks the shortcut."""
    rng, n = np.random.default_rng(0), 2000
    rare = np.arange(n) % 10 == 0
    breaks = rare & (np.arange(n) % 3 > 0)
    observed, planted = rng.normal(size=(2, n, 2))
    observed[:, 0] += 6 * rare
    observed[:, 1] += np.where(breaks, 4, -4)
    planted[:, 0] += 6
    planted[:, 1] += np.where(rng.random(n) < 0.5, 4, -4)
    one, broken = np.zeros(n, int), breaks.astype(int)
    shares = [damage_prevalence(observed, planted, [0], [1], 0.9, (of, of)) for of in (one, broken)]
    assert shares[0] > 0.05
    assert shares[1] == 0


def test_a_column_that_is_balanced_tells_which_rows_break_it(tmp_path: Path) -> None:
    rows = made()
    X = np.column_stack([rows.X[:, :4], np.sign(rows.score[:, 0])]).astype(np.float32)
    save_cues(robust_weights.fit(X, rows.y, rows.ids, CueSettings(spurious=(Named((4,)),))), tmp_path)
    np.testing.assert_array_equal(breaks_shortcut(tmp_path, X, rows.y), rows.breaks)


@pytest.mark.parametrize(("text", "with_words"), [({"model": "minilm"}, True), ({}, False)])
def test_words_are_taken_out_where_texts_are_read(text: dict[str, str], with_words: bool) -> None:
    chain: list[Operator[Any]] = [
        Encode(EncodeParams.model_validate({"text": text})),
        Ingest(IngestParams(label="y", features=["note"])),
        Cues(CuesParams()),
        Outliers(OutliersParams(rule="evidence")),
    ]
    found = chain[-1].in_chain(chain)
    assert isinstance(found, Outliers)
    assert (found.uses, found.with_words) == (("cues",), with_words)
    assert chain[-1].in_chain(chain[:2]).uses == ()
