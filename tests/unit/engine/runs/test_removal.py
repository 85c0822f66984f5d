"""Removal of one named version: by the path of pruning, with a record that outlives the version."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from connectors.storage import Place
from engine.cli.app import app
from engine.core.errors import InputError, LockedError
from engine.core.output_layout import output_of, version_folder
from engine.publish.lineage import trace
from engine.recipe.recipe import Recipe
from engine.runs.history import prune, remove
from engine.runs.retraction import retract
from engine.runs.runner import run
from engine.storage.lease import Lease, hold_lease
from engine.storage.lease.folder import FolderLease
from engine.storage.lease.objects import ObjectLease
from engine.storage.manifest import published_versions, read_manifest
from engine.storage.registrations import record_registration
from engine.storage.removals import FOLDER, removal_of
from engine.storage.stores import store_of
from engine.storage.withdrawals import current_version, withdrawn_bases, write_withdrawal
from engine.training.data.version import open_version
from tests.data import recipe_for, spurious_table
from tests.s3 import S3Server

_numbers = itertools.count()
OPERATORS = {"groups": {"method": "none"}, "weights": {}, "split": {}}


def grown(folder: Path, output: str, *counts: int) -> Recipe:
    """A recipe over one file for each count, which continues from the current version."""
    (folder / "data").mkdir(exist_ok=True)
    first = 0
    for index, count in enumerate(counts):
        pq.write_table(spurious_table(600).slice(first, count), folder / "data" / f"n{index}.parquet")
        first += count
    changes = {"operators": OPERATORS, "incremental": {"base": "current", "mode": "predict"}}
    return Recipe.parse(recipe_for(folder / "data", output, **changes))  # type: ignore[arg-type]


def publish_three(folder: Path, output: str) -> list[str]:
    """Publish three versions, each of which continues from the one before; returns their names."""
    return [run(grown(folder, output, *counts)).version for counts in ((200,), (200, 100), (200, 100, 60))]


@dataclass(frozen=True)
class Published:
    """An output with three versions, each of which continues from the one before."""

    output: str
    names: list[str]

    @property
    def place(self) -> Place:
        return output_of(self.output)

    def at(self, index: int) -> str:
        return f"{self.output}@{self.names[index]}"


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.slow)])
def published(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Published:
    """Three versions on a disk, or a copy of such a bucket."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if request.param == "disk":
        return Published(str(tmp_path / "out"), publish_three(tmp_path, str(tmp_path / "out")))
    server: S3Server = request.getfixturevalue("s3")
    bucket, names = request.getfixturevalue("on_s3")
    target = f"out-{next(_numbers)}"
    server.copy(bucket, "out", target)
    return Published(server.uri(bucket, target), names)


@pytest.fixture(scope="module")
def on_s3(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """A bucket with three versions below `out`."""
    bucket = s3.bucket()
    return bucket, publish_three(tmp_path_factory.mktemp("on_s3"), s3.uri(bucket, "out"))


def stored(place: Place) -> set[str]:
    return {entry.name for entry in store_of(place).root.iterdir() if entry.is_dir()}


def test_a_withdrawn_version_is_removed_and_the_others_go_on(published: Published, tmp_path: Path) -> None:
    names, place = published.names, published.place
    before = {name: read_manifest(version_folder(place, name)) for name in names}
    needed = [{entry["fingerprint"] for entry in before[name]["operators"]} for name in names]
    retract(place, names[1], "labels of May")
    foreseen = remove(place, names[1], dry_run=True)
    assert published_versions(place) == sorted(names)
    assert remove(place, names[1]) == foreseen
    assert foreseen.versions == (names[1],)
    assert set(foreseen.fingerprints) == needed[1] - needed[0] - needed[2]
    assert stored(place) >= needed[0] | needed[2]
    assert not stored(place) & set(foreseen.fingerprints)
    assert published_versions(place) == sorted([names[0], names[2]])
    assert not version_folder(place, names[1]).exists()
    for name in (names[0], names[2]):
        assert read_manifest(version_folder(place, name)) == before[name]
        assert open_version(version_folder(place, name)).manifest["rows"] == before[name]["rows"]
    found = removal_of(place, names[1])
    assert found is not None
    assert (found.base, found.rows) == (names[0], 300)
    for reader in (lambda at: trace(at, None), open_version):
        with pytest.raises(InputError, match=f"The version {names[1]} of 300 rows was removed from .* on 20"):
            reader(published.at(1))
    with pytest.raises(InputError, match=r"was removed from .* To have it again"):
        remove(place, names[1])
    last = run(grown(tmp_path, published.output, 200, 100, 60, 40))
    assert last.manifest["incremental"]["base"] == names[2]


def test_what_continues_from_it_leads_back_beyond_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = publish_three(tmp_path, str(out))
    manifest = read_manifest(version_folder(out, names[2]))
    for name in names[:2]:
        retract(out, name, f"why {name}")
    known = withdrawn_bases(out, manifest)
    assert list(known) == [names[1], names[0]]
    remove(out, names[1])
    assert withdrawn_bases(out, manifest) == known
    remove(out, names[0])
    assert withdrawn_bases(out, manifest) == known


def test_what_must_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    out = tmp_path / "out"
    names = publish_three(tmp_path, str(out))
    record_registration(out, names[0], "churn", "run1", number="7")
    cases = {
        names[2]: f"it is the current version. Withdraw it first: rowsieve retract {out}@{names[2]} --why",
        names[0]: "models lead back to it: churn 7. Delete these model versions on MLflow, and their records",
        names[1][:-1]: f"There is no published version '{names[1][:-1]}'",
        "../x": "There is no published version '../x'",
    }
    for name, why in cases.items():
        for dry_run in (True, False):
            with pytest.raises(InputError) as found:
                remove(out, name, dry_run=dry_run)
            assert why in str(found.value)
    write_withdrawal(out, names[2], "interrupted before CURRENT was moved")
    with pytest.raises(InputError, match=r"CURRENT names it\. Withdraw it first"):
        remove(out, names[2])
    assert prune(out, 1).kept_for[names[2]] == "CURRENT names it"
    with hold_lease(out, "a run"), pytest.raises(LockedError):
        remove(out, names[1])
    assert removal_of(out, names[0]) is None


def test_an_interruption_is_ended_by_the_same_command(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, place = published.names, published.place
    foreseen = remove(place, names[1], dry_run=True)
    kind: type[Lease] = FolderLease if isinstance(place, Path) else ObjectLease
    known = kind.discard
    for n_calls in range(24):
        left = [n_calls]

        def interrupted(*words: Any, left: list[int] = left, **named: Any) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            known(*words, **named)

        try:
            with monkeypatch.context() as patch:
                patch.setattr(kind, "discard", interrupted)
                remove(place, names[1])
        except KeyboardInterrupt:
            assert current_version(place) == names[2]
            assert open_version(published.at(2)).name == names[2]
        except InputError:
            break  # nothing was left to do
    else:
        pytest.fail("it never ended")
    assert not version_folder(place, names[1]).exists()
    assert not stored(place) & set(foreseen.fingerprints)


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = publish_three(tmp_path, str(out))

    def command(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["versions", str(out), *words])
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    foreseen = json.loads(command("remove", names[0], "--dry-run", "--json"))
    assert foreseen["versions"] == [names[0]]
    assert f"would remove 1 version and {len(foreseen['fingerprints'])} folders" in command(
        "remove", names[0], "--dry-run"
    )
    assert json.loads(command("remove", names[0], "--json")) == foreseen
    assert "was removed from" in command("remove", names[0], code=2)
    assert "name the version" in command("remove", code=2)
    assert "only `remove` takes a version" in command("prune", names[1], "--keep", "1", code=2)
    assert "only `prune` takes --keep" in command("remove", names[1], "--keep", "1", code=2)
    assert "write list, prune or remove" in command("delete", code=2)
    done = CliRunner().invoke(app, ["retract", f"{out}@{names[0]}", "--why", "x"])
    assert done.exit_code == 2
    assert "was removed from" in done.output


@pytest.mark.parametrize(
    "change",
    [{"version": "v2"}, {"base": "../x"}, {"rows": -1}, {"at": "1"}, {"fingerprints": ["../x"]}, {"more": 1}],
    ids=lambda change: next(iter(change)),
)
def test_a_forged_record_is_an_error(change: dict[str, Any], tmp_path: Path) -> None:
    record = {"version": "v1", "recipe": "r", "rows": 3, "content": "ab", "base": None, "at": 1.0}
    record |= {"fingerprints": ["0" * 32]}
    (tmp_path / FOLDER).mkdir()
    place = tmp_path / FOLDER / "v1.json"
    place.write_text(json.dumps(record))
    assert removal_of(tmp_path, "v1") is not None
    place.write_text(json.dumps(record | change))
    with pytest.raises(InputError, match=r"v1\.json says that the version was removed, but cannot be read"):
        removal_of(tmp_path, "v1")
    place.unlink()
    place.symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="cannot be read"):
        removal_of(tmp_path, "v1")
