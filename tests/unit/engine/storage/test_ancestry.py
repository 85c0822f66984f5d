"""The versions that a version continues from, and those that continue from it."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.storage import ancestry as ancestry_module
from engine.storage.ancestry import Ancestry
from engine.storage.withdrawals import withdrawn_bases


def publish(output: Path, name: str, base: str = "", number: int = 1, *, kept: bool = True) -> None:
    """Write a manifest with only what an ancestry looks at."""
    folder = output / "versions" / name
    folder.mkdir(parents=True)
    increment = {"base": base, "kept": ["probe"] if kept else []} if base else None
    manifest = {"version": name, "publication_number": number, "incremental": increment}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the versions whose manifests were read."""
    names: list[str] = []

    def read(folder: Path) -> Any:
        names.append(folder.name)
        return json.loads((folder / "manifest.json").read_text())

    monkeypatch.setattr(ancestry_module, "read_manifest", read)
    return names


def test_each_manifest_of_a_long_chain_is_read_once(tmp_path: Path, reads: list[str]) -> None:
    names = [f"v{number:03d}" for number in range(100)]
    for number, name in enumerate(names):
        publish(tmp_path, name, names[number - 1] if number else "", number + 1)
    ancestry = Ancestry(tmp_path)
    assert ancestry.versions_on("v000") == names[:0:-1]
    last = {"incremental": {"base": "v098", "kept": ["probe"]}}
    assert ancestry.bases(last) == names[98::-1]
    assert sorted(reads) == names


def test_branches_removed_versions_and_versions_that_keep_nothing(tmp_path: Path, reads: list[str]) -> None:
    publish(tmp_path, "a")
    publish(tmp_path, "b", "a", 2)
    publish(tmp_path, "c", "gone", 3)
    publish(tmp_path, "d", "a", 4, kept=False)
    publish(tmp_path, "e", "d", 5)
    publish(tmp_path, "f", "nowhere", 6)
    record = {"version": "gone", "recipe": "r", "rows": 1, "content": "0", "base": "b", "at": 1.0}
    (tmp_path / "removed").mkdir()
    (tmp_path / "removed" / "gone.json").write_text(json.dumps(record | {"fingerprints": []}))
    ancestry = Ancestry(tmp_path)
    assert ancestry.versions_on("a") == ["c", "b"]
    assert ancestry.versions_on("gone") == ["c"]
    assert ancestry.versions_on("d") == ["e"]
    assert ancestry.versions_on("c") == []
    assert ancestry.bases({"incremental": {"base": "c"}}) == ["c", "gone", "b", "a"]


def test_versions_that_name_each_other_as_base_end_the_search(tmp_path: Path, reads: list[str]) -> None:
    publish(tmp_path, "a", "b")
    publish(tmp_path, "b", "a")
    ancestry = Ancestry(tmp_path)
    assert ancestry.versions_on("a") == ["b"]
    assert ancestry.bases({"incremental": {"base": "a"}}) == ["a", "b"]


def test_nothing_is_read_where_nothing_was_withdrawn(tmp_path: Path, reads: list[str]) -> None:
    publish(tmp_path, "a")
    assert withdrawn_bases(tmp_path, {"incremental": {"base": "a"}}) == {}
    assert reads == []
