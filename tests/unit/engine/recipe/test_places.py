"""Files that a recipe names beside its paths."""

from __future__ import annotations

from typing import Any

import pytest

from engine.recipe.places import catalog_files


@pytest.mark.parametrize("warehouse", [None, 7, ["lake"]])
def test_a_property_of_a_catalog_that_is_no_text_names_no_file(warehouse: Any) -> None:
    catalog = {"uri": "sqlite:////mnt/c.db", "warehouse": warehouse}
    assert [*catalog_files("catalog", catalog)] == [("catalog.uri", "/mnt/c.db")]
    assert [*catalog_files("catalog", {"uri": warehouse, "warehouse": "a/b"})] == [
        ("catalog.warehouse", "a/b")
    ]
