from itertools import count
from pathlib import Path

import pytest

from tests.benchmarks import harness
from tests.benchmarks.harness import Spent, Timing, measure


def test_callables_take_turns_and_slow_ones_fewer():
    order: list[str] = []
    measure({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, {"a": 3, "b": 2})
    assert order == ["a", "b", "a", "b", "a"]


def test_a_timing_holds_the_median_the_extremes_and_the_last_result():
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 27.0])
    results = count()
    found = measure({"a": lambda: next(results)}, 3, clock=lambda: next(ticks))
    assert found["a"] == Timing(3.0, 1.0, 7.0)
    assert found["a"].result == 2


def test_a_run_elsewhere_is_taken_at_its_word():
    found = measure({"there": lambda: Spent(2.5, "labels")}, 2)["there"]
    assert (found.median, found.result) == (2.5, "labels")


def test_cpu_counts_the_process_not_the_wall():
    before = harness.cpu()
    sum(range(300_000))
    assert harness.cpu() > before


def test_a_table_has_all_columns_and_dashes():
    assert harness.table([{"n": 1, "ours": "0.1"}, {"n": 2, "peer": "3"}]) == (
        "| n | ours | peer |\n| --- | --- | --- |\n| 1 | 0.1 | - |\n| 2 | - | 3 |"
    )


def test_a_section_is_replaced_and_the_rest_kept(tmp_path: Path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- begin rows -->\nold\n<!-- end rows -->\nafter\n")
    for _ in range(2):
        harness.write_section(readme, "rows", "new\n")
        assert readme.read_text() == "before\n<!-- begin rows -->\nnew\n<!-- end rows -->\nafter\n"


@pytest.mark.parametrize("page", ["", "<!-- begin rows -->", "<!-- end rows --><!-- begin rows -->"])
def test_a_page_without_the_markers_is_refused(tmp_path: Path, page: str):
    readme = tmp_path / "README.md"
    readme.write_text(page)
    with pytest.raises(ValueError, match="begin rows"):
        harness.write_section(readme, "rows", "new")
    assert readme.read_text() == page


def test_figures_have_three_digits_and_ratios_two():
    assert [harness.figure(x) for x in (0.01234, 1.0, 12.34, 1234.5)] == ["0.0123", "1.00", "12.3", "1,234"]
    assert [harness.ratio(x) for x in (0.954, 8.77, 110.2)] == ["0.95x", "8.8x", "110x"]
