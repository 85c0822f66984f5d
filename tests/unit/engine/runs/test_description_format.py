"""A forged file of descriptions ends in one error that names it, and the next run replaces it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.errors import InputError
from engine.runs.descriptions import FORMAT, descriptions_file, read_descriptions, required_descriptions
from engine.runs.plugins import descriptions as plugin

RULE = {"text": "a = 1", "conditions": ["a = 1"], "coverage": 1.0, "purity": 0.5, "base": 0.25, "lift": 2.0}
TERM = {"column": "c", "term": "t", "in_group": 0.5, "in_rest_of_class": 0.1}
GROUP = {"class": "yes", "group": 0, "rows": 3, "share": 1, "accuracy": None, "description": "all"}
GROUP |= {"rule": RULE | {"rows": 3, "checked": 4}, "terms": [TERM], "central_rows": [1, 2]}
SLICE = {"slice": "x[1] > 0", "also": [], "description": "all", "rule": None}
WHOLE = {"format": FORMAT, "version": "v1", "groups": [GROUP], "slices": [SLICE]}


def write(output: Path, value: Any) -> Path:
    file = Path(str(descriptions_file(output, "v1")))
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(value))
    return file


def test_what_a_run_writes_is_read(tmp_path: Path) -> None:
    write(tmp_path, WHOLE)
    assert read_descriptions(tmp_path, "v1") == WHOLE


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"format": FORMAT}, "version: Field required"),
        (WHOLE | {"groups": {}}, "groups: Input should be a valid list"),
        (WHOLE | {"groups": [GROUP | {"rule": {}}]}, "groups.0.rule.coverage"),
        (WHOLE | {"groups": [GROUP | {"terms": [{}]}]}, "groups.0.terms.0.column"),
        (WHOLE | {"groups": [GROUP | {"group": "0"}]}, "groups.0.group"),
        (WHOLE | {"slices": [{"slice": "x"}]}, "slices.0.also"),
        *(
            (WHOLE | {"groups": [{k: v for k, v in GROUP.items() if k != key}]}, f"groups.0.{key}")
            for key in GROUP
        ),
    ],
)
def test_a_forged_file_is_one_error(value: Any, named: str, tmp_path: Path) -> None:
    file = write(tmp_path, value)
    for read in (read_descriptions, required_descriptions):
        with pytest.raises(InputError) as caught:
            read(tmp_path, "v1")
        for part in (str(file), named, "run the recipe again"):
            assert part in str(caught.value)


@pytest.mark.parametrize("value", [{}, [], {"format": FORMAT - 1}, {"format": [FORMAT]}])
def test_another_format_counts_as_none(value: Any, tmp_path: Path) -> None:
    write(tmp_path, value)
    assert read_descriptions(tmp_path, "v1") is None


def test_a_run_replaces_a_forged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"format": FORMAT})
    monkeypatch.setattr(plugin, "describe", lambda *_: WHOLE)
    run = SimpleNamespace(
        plan=SimpleNamespace(output=tmp_path, version="v1"),
        publication=SimpleNamespace(descriptions=None),
        meter=lambda _: SimpleNamespace(emit=lambda _: None),
        executor_for_step=lambda _: None,
    )
    plugin.Descriptions().published(cast(Any, run))
    assert run.publication.descriptions == read_descriptions(tmp_path, "v1") == WHOLE
