"""The report as a whole, over sidecars written by hand."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from operators.outliers.adaptor import Outliers, OutliersParams
from tests.unit.report_world import ADDED_BY, CLASSES, SYMBOLS, cells, html_of, made, plan_over


def test_the_table_of_groups_holds_the_counts(tmp_path: Path) -> None:
    source, columns = made()
    html = html_of(plan_over(tmp_path, source, columns))
    y, group, split = (np.array(columns[name], dtype=object) for name in ("y", "group", "split"))
    right = np.array([p == v for p, v in zip(columns["prediction"], columns["y"], strict=True)])
    found = {
        (row[0].split()[0].lstrip(SYMBOLS), row[1]): row
        for row in cells(html)
        if len(row) == 11 and row[1] in CLASSES
    }
    assert len(found) == len({pair for pair in zip(y, group, strict=True) if pair[0] is not None})
    for (name, class_name), row in found.items():
        own = (y == CLASSES.index(class_name)) & (group == (-1 if name == "noise" else int(name)))
        assert int(row[2]) == own.sum()
        assert float(row[4].removesuffix("\u00a0%")) == pytest.approx(100 * right[own].mean(), abs=0.05)
        assert int(row[8]) == (own & (group == -1)).sum()
        assert [int(v) for v in row[9:]] == [(own & (split == s)).sum() for s in ("train", "test")]
    assert "87 rows in 2 classes; 4 groups were inferred." in html
    assert "3 rows could not be used" in html


def test_the_worst_group_is_marked_unless_it_has_too_few_rows(tmp_path: Path) -> None:
    def marked(n: int) -> list[str]:
        source, columns = made(n)
        html = html_of(plan_over(tmp_path / str(n), source, columns))
        return re.findall(r'<tr class="worst">\s*<td class="t"><span[^>]*>[^<]*</span>(\d+) <span', html)

    assert marked(600) == ["1"]
    assert "1" not in marked(200)  # there it has 18 rows


def test_the_file_is_self_contained_and_the_same_again(tmp_path: Path) -> None:
    source, columns = made()
    plan = plan_over(tmp_path, source, columns, truth={"group": "really", "outlier": "broken"})
    html = html_of(plan)
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", html)
    assert not re.search(r"url\((?!data:)|@import|<script|<link", html)
    assert html_of(plan) == html


def test_rows_drawn_do_not_depend_on_the_shards(tmp_path: Path) -> None:
    source, columns = made()
    shown = []
    for shards in (1, 5):
        plan = plan_over(tmp_path / str(shards), source, columns, shards=shards, report={"rows_per_group": 3})
        html = html_of(plan)
        start = html.index('id="rows"')
        shown.append(html[start : html.index("Maps of the rows")])
    assert shown[0] == shown[1]


def test_the_time_of_each_operator_is_listed(tmp_path: Path) -> None:
    source, columns = made()
    plan = plan_over(tmp_path, source, columns, shards=3)
    plan.store.commit_fit(plan.fingerprint_of("probe"), {}, seconds=7.0)
    html = html_of(plan)
    rows = {row[0]: row[1:] for row in cells(html) if len(row) == 7 and row[0] in dict(ADDED_BY)}
    assert set(rows) == set(ADDED_BY)
    per_million = f"{8.5e6 / 90:,.0f}"
    assert rows["probe"][:5] == ["90", "7.00", "1.50", "", per_million]
    assert rows["groups"][1:3] == ["0.00", "1.50"]
    seconds = 7.0 + 1.5 * len(ADDED_BY)
    assert f"The operators took {seconds:.1f} s in all" in html
    assert f"probe took {100 * 8.5 / seconds:.1f}\u00a0% of it." in html


def test_disputed_rows_are_counted_and_shown(tmp_path: Path) -> None:
    source, columns = made()
    marked = ["eos+grasp:noise" if i < 7 else "eos" if i < 20 else "" for i in range(len(columns["y"]))]
    judged = [text.count("+") == 1 for text in marked]
    absent = [y is None for y in columns["y"]]
    for name, values in (("marked_by", marked), ("is_outlier", judged)):
        columns[name] = [None if gone else value for gone, value in zip(absent, values, strict=True)]
    outliers = Outliers(OutliersParams(rule="all"), ["eos", "group"])
    plan = plan_over(tmp_path, source, columns, truth={"outlier": "broken"}, described={"outliers": outliers})
    html = html_of(plan)
    there = [text for text, gone in zip(marked, absent, strict=True) if not gone]
    names = ("eos", "eos and grasp:noise", "no operator")
    table = {row[0]: row for row in cells(html) if row and row[0] in names}
    assert {by: (int(row[1]), int(row[5])) for by, row in table.items()} == {
        "eos": (there.count("eos"), 0),
        "eos and grasp:noise": (there.count("eos+grasp:noise"), there.count("eos+grasp:noise")),
        "no operator": (there.count(""), 0),
    }
    summary = html[: html.index("What to do next")]
    assert f"disagree on {there.count('eos')} rows. By the recipe&#39;s rule (all operators" in summary
    shown = html[html.index("Disputed rows") :]
    rows = {int(row[0]) for row in cells(shown[: shown.index("</table>")])[1:]}
    disputed = {i for i, text in enumerate(marked) if text == "eos" and not absent[i]}
    assert rows
    assert rows <= disputed


def test_no_secret_of_the_environment_is_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is redacted once it is rendered, as templates escape what they show."""
    secret = "S3cr&t<1>'\"Zz"
    monkeypatch.setenv("SHOP_PASSWORD", secret)
    source, columns = made()
    html = html_of(plan_over(tmp_path, source, columns, classes=["no", f"of {secret}."]))
    assert "of ***." in html
    for form in (secret, "S3cr&amp;t", "S3cr\\u0026t"):
        assert form not in html


@pytest.mark.parametrize("image", [False, True])
def test_values_of_the_data_appear_as_text(tmp_path: Path, image: bool) -> None:
    evil = "<script>alert('$\\frac{')</script>"
    source, columns = made()
    text = pa.array([evil] * source.num_rows)
    source = source.set_column(2, "text", text).set_column(3, "really", text)
    report: dict[str, Any] = {"title": evil, "fields": ["text"]}
    if image:
        report["image"] = {"column": "picture", "height": 2, "width": 3}
    plan = plan_over(
        tmp_path, source, columns, classes=[evil, "yes"], report=report, truth={"group": "really"}
    )
    html = html_of(plan)
    assert "<script" not in html
    assert html.count("&lt;script&gt;") > 5


def test_pictures_are_one_per_group_with_captions(tmp_path: Path) -> None:
    source, columns = made()
    image = {"column": "picture", "height": 2, "width": 3}
    html = html_of(plan_over(tmp_path, source, columns, report={"image": image, "rows_per_group": 4}))
    pairs = list(zip(columns["y"], columns["group"], strict=True))
    failing = sorted([(0, 1), (0, -1), (1, -1)], key=pairs.count)
    fine = sorted([(0, 0), (1, 2), (1, 3)], key=pairs.count)
    slugs = [f"{'group' if g >= 0 else 'noise'}-{y}-{g}" for y, g in [*failing, *fine]]
    found = re.findall(r"\.([\w-]+) \{ background-image: url\(data:image/png", html)
    assert found == [*slugs, "strongest"]
    for slug, pair in zip(slugs, [*failing, *fine], strict=True):
        assert html.count(f'class="thumb {slug}"') == min(4, pairs.count(pair))
    start = html.index('class="thumb group-0-1"')
    assert html[start : html.index("<h3>", start)].count("predicted: yes") == 4


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        ({"image": {"column": "pictur", "height": 2, "width": 3}}, "report.image.column: the source has no"),
        ({"image": {"column": "picture", "height": 2, "width": 2}}, "2 x 2 x 1 = 4 are needed"),
        ({"image": {"column": "text", "height": 2, "width": 2}}, "has 0 numbers"),
        ({"fields": ["txt"]}, "Did you mean &#39;text&#39;?"),
    ],
)
def test_what_cannot_be_shown_is_said(tmp_path: Path, report: dict[str, Any], complaint: str) -> None:
    source, columns = made()
    assert complaint in html_of(plan_over(tmp_path, source, columns, report=report))


def test_a_truth_that_is_no_truth_value_is_said(tmp_path: Path) -> None:
    source, columns = made()
    html = html_of(plan_over(tmp_path, source, columns, truth={"outlier": "text"}))
    assert "cannot be read as true or false" in html


def test_a_truth_of_lists_has_no_scores_of_groups(tmp_path: Path) -> None:
    source, columns = made()
    html = html_of(plan_over(tmp_path, source, columns, truth={"group": "picture"}))
    assert "no value of the column &#39;picture&#39; can be read as the name of a group" in html
    assert "adjusted Rand index" not in html


def test_missing_true_groups_are_said(tmp_path: Path) -> None:
    source, columns = made()
    names = [None if i % 3 else "None" for i in range(source.num_rows)]
    source = source.append_column("missing", pa.array(names))
    html = html_of(plan_over(tmp_path, source, columns, truth={"group": "missing"}))
    assert "rows without a value in the column &#39;missing&#39; count in no true group." in html
    table = html[html.index("True groups, and") :]
    assert [row[0] for row in cells(table[: table.index("</table>")])[1:]] == ["None"]


def test_the_rows_to_look_at_are_those_that_the_sentence_names(tmp_path: Path) -> None:
    source, columns = made()
    html = html_of(plan_over(tmp_path / "kept", source, columns))
    rows = sum(bool(mark) for mark in columns["is_outlier"])
    assert f"Look at the {rows} rows whose <code>is_outlier</code> is true and whose" in html
    assert "<code>outlier_source</code> is not <code>quarantine</code>, which are probably corrupt." in html
    assert "They keep their weight" in html
    columns["weight"] = [
        w and float(not m) for w, m in zip(columns["weight"], columns["is_outlier"], strict=True)
    ]
    html = html_of(plan_over(tmp_path / "left out", source, columns))
    assert "They keep their weight" not in html
    assert "Training leaves them out" in html


def test_the_page_says_which_rows_operators_learn_from(tmp_path: Path) -> None:
    plan = replace(plan_over(tmp_path, *made()), learnt_from="Operators learn from all rows, so optimistic.")
    assert "Operators learn from all rows, so optimistic." in html_of(plan)


def test_lists_are_counted_and_long_values_cut(tmp_path: Path) -> None:
    source, columns = made()
    source = source.set_column(2, "text", pa.array(["long " * 100] * source.num_rows))
    html = html_of(plan_over(tmp_path, source, columns, report={"fields": ["picture", "text"]}))
    assert "[6 numbers]" in html
    assert "long " * 15 in html
    assert "long " * 17 not in html


def test_a_recipe_without_probe_and_gradients_still_has_a_report(tmp_path: Path) -> None:
    source, columns = made()
    for name in ("gradient", "prediction", "loss"):
        columns.pop(name)
    html = html_of(plan_over(tmp_path, source, columns))
    assert html.count('alt="Maps of the rows of class') == 2
    assert "accuracy" not in html[html.index("<h2>Groups</h2>") :].lower()
    assert "The classifier has" not in html


def test_scores_are_there_only_with_truth(tmp_path: Path) -> None:
    source, columns = made()
    assert "<h2>Scores by the truth</h2>" not in html_of(plan_over(tmp_path / "a", source, columns))
    html = html_of(plan_over(tmp_path / "b", source, columns, truth={"group": "really", "outlier": "broken"}))
    ari = next(row for row in cells(html) if row[:1] == ["adjusted Rand index; noise counts as one group"])
    assert ari[1] == "1"  # the true group was made from the inferred one
    broken = source.column("broken").to_pylist()
    noise = [g == -1 for g in columns["group"]]
    hits = sum(b for b, m in zip(broken, noise, strict=True) if m)
    known = sum(b for b, valid in zip(broken, columns["valid"], strict=True) if valid)
    assert f"outlier recall of is_outlier ({hits} of {known})" in html


def test_importing_the_report_draws_nothing() -> None:
    code = "import sys, engine.report; print(*{'matplotlib', 'jinja2', 'sklearn'}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
