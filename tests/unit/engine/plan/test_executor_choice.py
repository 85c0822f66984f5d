"""``run.executor: auto``: this process for small work, Ray where it saves time or is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from engine.plan import executor_choice
from engine.plan.executor_choice import choose_executor, n_columns, pending_cpu_seconds, resolved_section
from engine.plan.model import Plan
from engine.plan.planner import make_plan
from engine.recipe.recipe import Recipe
from operators.base import Cost
from operators.probe.adaptor import Probe
from tests.data import recipe_for, spurious_table, write_shards


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def plan(folder: Path, run: dict[str, Any] | None = None, **sections: Any) -> Plan:
    if not (folder / "data").exists():
        write_shards(folder / "data", spurious_table())
    return make_plan(Recipe.parse(recipe_for(folder / "data", folder / "out", run=run or {}, **sections)))


def test_small_work_stays_in_this_process(tmp_path: Path) -> None:
    choice = choose_executor(plan(tmp_path, {"executor": "auto"}))
    assert choice.kind == "local"
    assert "shards" in choice.reason
    assert resolved_section(plan(tmp_path, {"executor": "auto"})).executor == "local"


def test_one_shard_is_in_the_singular(tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table(), 1)
    assert "in 1 shard: starting Ray" in choose_executor(plan(tmp_path, {"executor": "auto"})).reason


def test_auto_is_the_default(tmp_path: Path) -> None:
    mapping = recipe_for(tmp_path, tmp_path / "out")
    del mapping["run"]
    assert Recipe.parse(mapping).run.executor == "auto"


@pytest.mark.parametrize(
    ("cpu_seconds", "cores", "kind"),
    [(140, 2, "local"), (170, 2, "ray"), (20, 16, "local"), (40, 16, "ray"), (40, 2, "local")],
)
def test_what_ray_costs_is_shared_by_the_cores(
    cpu_seconds: float, cores: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(tmp_path, {"executor": "auto"})
    monkeypatch.setattr(executor_choice, "pending_cpu_seconds", lambda _: cpu_seconds)
    monkeypatch.setattr(executor_choice.os, "cpu_count", lambda: cores)
    many = replace(made, listing=replace(made.listing, shards=made.listing.shards * 16))
    assert choose_executor(many).kind == kind


def test_much_work_goes_to_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "cost", Cost(1e9, 1e9))
    monkeypatch.setattr(executor_choice.os, "cpu_count", lambda: 4)
    assert choose_executor(plan(tmp_path, {"executor": "auto"})).kind == "ray"
    monkeypatch.setattr(executor_choice.os, "cpu_count", lambda: 1)  # nothing to share
    assert choose_executor(plan(tmp_path, {"executor": "auto"})).kind == "local"


@pytest.mark.parametrize("kind", ["local", "ray"])
def test_a_named_executor_wins(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert choose_executor(plan(tmp_path, {"executor": kind})).kind == kind


def test_a_named_cluster_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert choose_executor(plan(tmp_path, {"executor": "auto"})).reason == "RAY_ADDRESS names a cluster"


def test_an_operator_that_needs_ray_gets_it(tmp_path: Path) -> None:
    chain = {"probe": {"trainer": "ray"}, "gradients": {}, "groups": {}, "weights": {}, "split": {}}
    assert "probe" in choose_executor(plan(tmp_path, {"executor": "auto"}, operators=chain)).reason


def test_committed_shards_count_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(tmp_path)
    before = pending_cpu_seconds(made)

    class AllDone:
        committed: ClassVar[Any] = staticmethod(
            lambda fingerprint: {shard.index: None for shard in made.shards}
        )

    monkeypatch.setattr(Plan, "store", property(lambda self: AllDone()))
    assert before > 0
    assert pending_cpu_seconds(made) == 0


def test_a_network_takes_as_long_however_few_columns_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(tmp_path)
    before, rows = pending_cpu_seconds(made), sum(shard.n_rows for shard in made.shards)
    (probe,) = (one.operator.cost for one in made.operators if one.name == "probe")
    network = Cost(probe.small + 1e6, probe.large + 1e6, by_features=False)
    monkeypatch.setattr(Probe, "cost", network)
    assert rows <= pending_cpu_seconds(made) - before <= 1.1 * rows


def test_vectors_count_by_their_length() -> None:
    schema = pa.schema(
        {"a": pa.int64(), "v": pa.list_(pa.float32(), 10), "w": pa.list_(pa.float32()), "t": pa.string()}
    )
    assert n_columns(schema, ["a", "v"]) == 11
    assert n_columns(schema, ["w"]) == executor_choice.UNKNOWN_WIDTH
    assert n_columns(schema, []) == 1
