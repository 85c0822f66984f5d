"""The maps of the rows: a figure for each class that has rows enough, with the class in its title."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.report import point_maps
from engine.report.point_maps import MIN_POINTS, Colouring, draw, point_map_figures
from operators.report import PointMap

PLAN: Any = SimpleNamespace(recipe=SimpleNamespace(truth=SimpleNamespace(group=None)))


def map_of(y: int, n: int) -> PointMap:
    return PointMap("rows", y, np.arange(n) + 1000 * y, np.random.default_rng(y).normal(size=(n, 2)))


def groups_of(*sizes: int) -> list[Any]:
    return [
        SimpleNamespace(y=y, class_name=f"kind {y}", stat=SimpleNamespace(rows=rows))
        for y, rows in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "drawn"),
    [((500, 400), [0, 1]), ((500, MIN_POINTS - 1), [0]), ((8, MIN_POINTS), [1]), ((8, 9), [1])],
)
def test_a_class_of_few_rows_has_no_map(
    sizes: tuple[int, ...], drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_maps, "colourings_of", lambda *_: [])
    monkeypatch.setattr(point_maps, "draw", lambda *_: None)
    monkeypatch.setattr(point_maps, "png", lambda _: "picture")
    groups = [*groups_of(*sizes), *groups_of(*(0 for _ in sizes))]
    figures = point_map_figures(PLAN, [map_of(y, min(n, 50)) for y, n in enumerate(sizes)], groups)
    assert [figure["name"] for figure in figures] == [f"kind {y}" for y in drawn]


@pytest.mark.parametrize(("truth", "drawn"), [(None, ["kind 1"]), ("place", ["kind 0", "kind 1"])])
def test_a_class_with_one_group_has_a_map_only_for_its_true_groups(
    truth: str | None, drawn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_maps, "colourings_of", lambda *_: [])
    monkeypatch.setattr(point_maps, "draw", lambda *_: None)
    monkeypatch.setattr(point_maps, "png", lambda _: "picture")
    plan: Any = SimpleNamespace(recipe=SimpleNamespace(truth=SimpleNamespace(group=truth)))
    groups = [*groups_of(400, 300), groups_of(0, 100)[1]]
    figures = point_map_figures(plan, [map_of(0, 50), map_of(1, 50)], groups)
    assert [figure["name"] for figure in figures] == drawn


def test_the_title_of_a_map_names_its_class() -> None:
    shown = map_of(0, 40)
    names = dict.fromkeys(shown.row_ids.tolist(), "all (40)")
    colouring = Colouring("inferred group", names, {"all (40)": ("#0072B2", "o")})
    figure = draw([shown], [colouring], "kind $0$")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["class kind $0$: rows, by inferred group"]
