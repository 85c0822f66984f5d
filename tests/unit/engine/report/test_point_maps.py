"""The maps of the rows: a figure for each class that has rows enough, with the class in its title."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.report import point_maps
from engine.report.point_maps import MIN_POINTS, Colouring, draw, point_map_figures
from operators.report import PointMap


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
    plan: Any = None
    figures = point_map_figures(plan, [map_of(y, min(n, 50)) for y, n in enumerate(sizes)], groups_of(*sizes))
    assert [figure["name"] for figure in figures] == [f"kind {y}" for y in drawn]


def test_the_title_of_a_map_names_its_class() -> None:
    shown = map_of(0, 40)
    names = dict.fromkeys(shown.row_ids.tolist(), "all (40)")
    colouring = Colouring("inferred group", names, {"all (40)": ("#0072B2", "o")})
    figure = draw([shown], [colouring], "kind $0$")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["class kind $0$: rows, by inferred group"]
