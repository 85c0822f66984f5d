"""On how many rows the gain of a suspect rests, and which rows are too few to be in it."""

import numpy as np

from operators.cues.search.suspects import _small_cells, _worst


def test_cells_of_few_rows_are_in_no_gain() -> None:
    accuracy = np.array([[0.9, 0.1], [0.5, 0.7]])
    count = np.array([[900.0, 15.0], [31.0, 400.0]])
    assert _worst(accuracy, count) == (0.5, 31)
    assert _small_cells(count) == (15,)


def test_where_no_cell_has_enough_rows_all_count() -> None:
    accuracy = np.array([[0.9, np.nan], [0.5, 0.1]])
    count = np.array([[9.0, 0.0], [12.0, 4.0]])
    assert _worst(accuracy, count) == (0.1, 4)
    assert _small_cells(count) == ()
