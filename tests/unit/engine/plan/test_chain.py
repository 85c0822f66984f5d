"""The columns of the contract are found by their names in the manifests of any release."""

from __future__ import annotations

from typing import Any

import pytest

from engine.plan.chain import CONTRACT, contract_columns

NAMES = [field.name for field in CONTRACT]


def manifest(names: list[str]) -> dict[str, Any]:
    return {"outputs": [{"name": name, "operator": f"adds {name}"} for name in names]}


@pytest.mark.parametrize("prefix", ["", "rs_"])
def test_columns_in_any_order_are_found_by_name(prefix: str) -> None:
    """A release may add a column in the middle: versions of other releases keep all that they have."""
    others = ["group_size", *NAMES[::-1], "fold"]
    for names in (NAMES, [*NAMES[:2], "group_size", *NAMES[2:]], others):
        found = contract_columns(manifest([prefix + name for name in names]))
        expected = {name: {"name": prefix + name, "operator": f"adds {prefix}{name}"} for name in NAMES}
        assert found == expected


def test_a_column_of_the_contract_that_a_manifest_lacks_is_left_out() -> None:
    assert list(contract_columns(manifest(["row_id", "weight", "split"]))) == ["row_id", "weight", "split"]
    assert list(contract_columns(manifest(["rs_row_id", "weight", "rs_split"]))) == ["row_id", "split"]
    assert contract_columns(manifest(["weight", "split"])) == {}
    assert contract_columns({}) == {}
