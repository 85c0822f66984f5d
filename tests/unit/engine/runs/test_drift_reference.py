"""Drift is measured against the version at which operators were last fitted, whatever their names."""

import json
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.publish.results import RunResult
from engine.recipe.recipe import Recipe
from engine.runs.row_changes import reasons_of
from engine.runs.runner import run
from operators import registry
from operators.base import FEATURES, GROUP, LABEL, Apply, Context, Executor, Operator, OperatorParams
from operators.columns import vectors_to_numpy
from tests.data import recipe_for, spurious_table


class BandsParams(OperatorParams):
    method: Literal["bands"] = "bands"
    cut: float = 0.0


class Bands(Operator[BandsParams]):
    """Operator of another package: two groups of each class, below and above a cut of the first feature."""

    name, version, Params = "bands", 1, BandsParams
    fitted: ClassVar[int] = 0

    @property
    def requires(self) -> tuple[str, ...]:
        return (FEATURES, LABEL)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        return (pa.field(GROUP, pa.int32()), pa.field("group_outlier", pa.bool_()))

    @property
    def can_predict(self) -> bool:
        return True

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        Bands.fitted += 1
        return {}

    def open(self, context: Context) -> Apply:
        def bands(table: pa.Table) -> pa.Table:
            above = vectors_to_numpy(table.column(FEATURES))[:, 0] > self.params.cut
            group = 2 * table.column(LABEL).to_numpy() + above
            return pa.table(
                {GROUP: pa.array(group.astype(np.int32)), "group_outlier": np.zeros(len(group), bool)}
            )

        return bands


@pytest.fixture
def bands(monkeypatch: pytest.MonkeyPatch) -> None:
    found = registry.operator_class
    monkeypatch.setattr(registry, "BUILT_IN", {**registry.BUILT_IN, "bands": f"{__name__}:Bands"})
    assert found("bands") is Bands


def night(folder: Path, number: int, cut: float) -> RunResult:
    """Publish one file more, with groups by a cut."""
    (folder / "data").mkdir(exist_ok=True)
    pq.write_table(spurious_table(100, number), folder / "data" / f"{number}.parquet")
    value: dict[str, Any] = recipe_for(
        folder / "data", folder / "out", incremental={"base": "current", "mode": "predict"}
    )
    value["operators"] = {"bands": {"cut": cut}, "weights": {"method": "uniform"}, "split": {}}
    return run(Recipe.parse(value))


def test_an_operator_of_another_package_that_was_fitted_again_sets_the_reference(
    tmp_path: Path, bands: None
) -> None:
    first = night(tmp_path, 0, 0.0)
    second = night(tmp_path, 1, 0.0)
    third = night(tmp_path, 2, 0.5)
    assert "bands" in third.manifest["incremental"]["fitted"]
    assert Bands.fitted == 2
    fourth = night(tmp_path, 3, 0.5)

    def references(result: RunResult) -> dict[str, str]:
        return {figure["name"]: figure["against"] for figure in result.manifest["incremental"]["drift"]}

    assert set(references(second).values()) == {first.version}
    assert references(fourth)["shares"] == third.version
    assert set(references(fourth).values()) == {third.version}


def test_columns_of_the_contract_have_their_use_whichever_operator_adds_them(
    tmp_path: Path, bands: None
) -> None:
    """The card, Croissant and the difference of versions know columns by their names, not by operators."""
    first = night(tmp_path, 0, 0.0)
    assert "`group` is inferred from the data" in (first.path / "README.md").read_text()
    croissant = json.loads((first.path / "croissant.json").read_text())
    fields = {field["name"]: field for one in croissant["recordSet"] for field in one["field"]}
    assert "cr:Split" in fields["split"]["dataType"]
    other = night(tmp_path, 0, 0.5)
    assert reasons_of(first.manifest, other.manifest)["group"] == "bands: other cut"
    renamed = json.loads(json.dumps(other.manifest).replace('"bands"', '"stripes"'))
    assert reasons_of(other.manifest, renamed)["group"] == "stripes replaced bands"
