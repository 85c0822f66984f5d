"""The search for faulty rows of a batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from engine.execution.quarantine import _as_json
from engine.execution.row_faults import apply_without_faulty


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_what_fails_without_any_row_is_no_fault_of_a_row(rows: int) -> None:
    def apply(table: pa.Table) -> pa.Table:
        raise ValueError("not of a row")

    with pytest.raises(ValueError, match="not of a row"):
        apply_without_faulty(apply, pa.table({"x": list(range(rows))}), 4)


def test_the_faulty_rows_are_found() -> None:
    def apply(table: pa.Table) -> pa.Table:
        if bad := [x for x in table["x"].to_pylist() if x in (2, 5)]:
            raise ValueError(f"{bad[0]} is bad")
        return table

    table, faults = apply_without_faulty(apply, pa.table({"x": list(range(8))}), 3)
    assert table["x"].to_pylist() == [0, 1, 3, 4, 6, 7]
    assert faults == {2: "ValueError: 2 is bad", 5: "ValueError: 5 is bad"}


def test_a_quarantined_row_is_json_whatever_its_numbers() -> None:
    text = _as_json({"x": float("inf"), "y": float("nan"), "z": b"\x00"})
    assert text == '{"x": "Infinity", "y": null, "z": "AA=="}'
