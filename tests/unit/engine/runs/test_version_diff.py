"""Differences between versions, their history, and pruning."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.runs import diff as diff_module
from engine.runs import history as history_module
from engine.runs.diff import ChangeCounts, diff, match_groups
from engine.runs.history import history, prune
from engine.runs.row_changes import write_row_changes
from engine.runs.row_matching import match_rows
from engine.runs.row_pairs import FILE, KEY, ROW, RowBatch, RowPairs
from engine.storage.withdrawals import version_before
from engine.training.data.version import Version, open_version
from operators.base import DUPLICATE_OF, GROUP, IS_OUTLIER, ROW_ID, SPLIT, WEIGHT
from tests.unit.engine.runs.test_increments import add_night, nights, recipe, run, spurious_table

VALUES = ("group", "split", "is_outlier", "weight")


def write_version(folder: Path, name: str, files: dict[str, tuple[str, list[int]]], seed: int) -> Version:
    """A version with random columns; files: path -> (identity, rows of each of its parts)."""
    rng, shards, parts, first = np.random.default_rng(seed), [], [], 0
    place = folder / "versions" / name
    (place / "data").mkdir(parents=True)
    groups: Counter[str] = Counter()
    for path, (_, sizes) in files.items():
        for index, rows in enumerate(sizes):
            group = rng.integers(-1, 3, rows).astype(np.int32)
            groups.update(map(str, group.tolist()))
            table = pa.table(
                {
                    "row_id": np.arange(first, first + rows),
                    "group": group,
                    "is_outlier": rng.random(rows) < 0.2,
                    "weight": rng.choice([0.5, 1.0, 1.005], rows).astype(np.float32),
                    "split": rng.choice(["train", "test"], rows),
                }
            )
            part = f"data/part-{len(parts):05d}.parquet"
            pq.write_table(table, place / part)
            shards.append({"path": path, "first_row": first, "rows": rows, "range": [index, index + 1]})
            parts.append({"path": part, "rows": rows})
            first += rows
    manifest = {
        "version": name,
        "rows": first,
        "parts": parts,
        "schema": [{"name": "row_id", "type": "int64"}],
        "summary": {"groups": dict(groups)},
        "source": {"shards": shards, "files": {path: identity for path, (identity, _) in files.items()}},
    }
    return Version(place, manifest)


def rows_of(version: Version) -> dict[tuple[str, int], dict[str, Any]]:
    """Each row by (identity of its file, place in it)."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    seen: Counter[str] = Counter()
    for shard, part in zip(version.manifest["source"]["shards"], version.manifest["parts"], strict=True):
        identity = version.manifest["source"]["files"][shard["path"]]
        for row in pq.read_table(version.folder / part["path"]).to_pylist():
            found[identity, seen[identity]] = row
            seen[identity] += 1
    return found


def test_agrees_with_a_join_of_all_rows(tmp_path: Path) -> None:
    before = write_version(tmp_path, "v1", {"a": ("A", [30, 20]), "b": ("B", [10]), "c": ("C", [5])}, 0)
    after = write_version(tmp_path, "v2", {"b": ("B", [4, 6]), "x": ("A", [15, 35]), "d": ("D", [7])}, 1)
    found = diff(before, after, tolerance=0.01)
    then, now = rows_of(before), rows_of(after)
    keys = then.keys() & now.keys()
    assert found["rows"] == {"before": 65, "after": 67, "common": 60, "gone": 5, "new": 7}
    pairs = Counter((then[key]["group"], now[key]["group"]) for key in keys)
    same = {g["before"]: g["after"] for g in found["groups"] if g["before"] is not None} | {-1: -1}
    moved = sum(n for (a, b), n in pairs.items() if same[a] != b)
    changed = found["changed"]
    assert changed["group"]["rows"] == moved
    for kind, name in (("split", "split"), ("outlier", "is_outlier")):
        assert changed[kind]["rows"] == sum(then[key][name] != now[key][name] for key in keys)
    change = [abs(then[key]["weight"] - now[key]["weight"]) for key in keys]
    assert changed["weight"]["rows"] == sum(value > 0.01 for value in change)
    assert found["largest_weight_change"] == pytest.approx(max(change))
    for kind in ("group", "split", "outlier", "weight"):
        for example in changed[kind]["examples"]:
            expected = same[example["before"]] if kind == "group" else example["before"]
            assert expected != example["after"]
            identity = before.manifest["source"]["files"].get(example["file"], "")
            identity = identity or after.manifest["source"]["files"][example["file"]]
            assert then[identity, example["row"]]["row_id"] == example["row_id_before"]
            assert now[identity, example["row"]]["row_id"] == example["row_id_after"]


def test_changed_rows_are_not_written_under_the_name_of_another_format(tmp_path: Path) -> None:
    version = write_version(tmp_path, "v1", {"a": ("A", [3])}, 0)
    with (
        RowPairs(version, version) as pairs,
        pytest.raises(InputError, match=r"written as Parquet\. Name the file .*rows\.parquet"),
    ):
        write_row_changes(pairs, {"groups": []}, tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()


def test_every_changed_row_is_written(tmp_path: Path) -> None:
    before = write_version(tmp_path, "v1", {"a": ("A", [30, 20]), "b": ("B", [10]), "c": ("C", [5])}, 0)
    after = write_version(tmp_path, "v2", {"b": ("B", [4, 6]), "x": ("A", [15, 35]), "d": ("D", [2, 5])}, 1)
    entry = {"name": "weights", "params": {"cap": 20}, "version": 1, "fingerprint": "0"}
    before.manifest["operators"] = [entry, entry | {"name": "split"}]
    after.manifest["operators"] = [
        entry | {"params": {"cap": 5}},
        entry | {"name": "split", "fingerprint": "1"},
    ]
    then, now, found = rows_of(before), rows_of(after), diff(before, after)
    same = {g["before"]: g["after"] for g in found["groups"] if g["before"] is not None} | {-1: -1}
    file = tmp_path / "rows.parquet"
    with RowPairs(before, after) as pairs:
        assert write_row_changes(pairs, found, file) == pq.read_metadata(file).num_rows
        bytes_then = file.read_bytes()
        write_row_changes(pairs, found, file)
    assert file.read_bytes() == bytes_then
    seen: dict[tuple[str, int], dict[str, Any]] = {}
    for row in pq.read_table(file).to_pylist():
        files = after.manifest if row["change"] == "new" else before.manifest
        key = (files["source"]["files"].get(row["file"], "A"), row["row"])
        assert key not in seen
        seen[key] = row
        for side, rows in (("before", then), ("after", now)):
            assert {name: row[f"{name}_{side}"] for name in ("row_id", *VALUES)} == {
                name: rows[key][name] if key in rows else None for name in ("row_id", *VALUES)
            }
    changed = {
        key
        for key in then.keys() & now.keys()
        if same[then[key]["group"]] != now[key]["group"]
        or any(then[key][name] != now[key][name] for name in ("split", "is_outlier"))
        or abs(then[key]["weight"] - now[key]["weight"]) > 0.01
    }
    by_change = {
        kind: {key for key, row in seen.items() if row["change"] == kind}
        for kind in ("changed", "gone", "new")
    }
    assert by_change == {
        "changed": changed,
        "gone": then.keys() - now.keys(),
        "new": now.keys() - then.keys(),
    }
    reasons = {
        part for row in seen.values() if row["change"] == "changed" for part in row["reason"].split("; ")
    }
    assert reasons == {
        "weights: other cap",
        "split: fitted on other rows, or on other results of the operators before it",
        "groups was not in both recipes",
        "outliers was not in both recipes",
    }
    with (
        RowPairs(before, after) as pairs,
        pytest.raises(InputError, match=r"--rows .* cannot be written"),
    ):
        write_row_changes(pairs, found, tmp_path / "no/rows.parquet")


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6), st.lists(st.integers(1, 9), min_size=1, max_size=6)
)
def test_pieces_cover_the_rows_in_common_once(then: list[int], now: list[int]) -> None:
    manifests = [
        {
            "source": {
                "files": {"f": "F"},
                "shards": [{"path": "f", "rows": n, "range": [i, i + 1]} for i, n in enumerate(sizes)],
            }
        }
        for sizes in (then, now)
    ]
    starts = [np.concatenate(([0], np.cumsum(sizes))).tolist() for sizes in (then, now)]
    covered = []
    for piece in match_rows(*manifests):
        for side in (0, 1):
            assert starts[side][piece.parts[side]] + piece.starts[side] == piece.row
        covered += range(piece.row, piece.row + piece.rows)
    assert sorted(covered) == list(range(min(sum(then), sum(now))))


def test_many_pairs_of_groups_take_no_longer_than_few() -> None:
    """The first row of every pair was searched from the start of the batch: a minute here."""
    n = 40_000
    table = pa.table(
        {
            GROUP: np.arange(n) // 2,
            SPLIT: ["train"] * n,
            IS_OUTLIER: np.zeros(n, bool),
            WEIGHT: np.ones(n),
            DUPLICATE_OF: pa.nulls(n, pa.int64()),
            FILE: ["f"] * n,
            ROW: np.arange(n),
            ROW_ID: np.arange(n),
            KEY: pa.nulls(n),
        }
    )
    counts, began = ChangeCounts(), time.process_time()
    nothing = table.slice(0, 0)
    diff_module._add(counts, RowBatch(table, table, nothing, nothing, np.zeros(n, bool)), 0.0)
    assert time.process_time() - began < 4
    assert counts.groups == Counter({(g, g): 2 for g in range(n // 2)})
    assert [one["row"] for one in counts.examples["group", (7, 7)]] == [14], "the first row of the pair"


def test_groups_are_matched_by_their_rows() -> None:
    rows = {(0, 1): 50, (0, 2): 9, (1, 0): 30, (1, 2): 40, (-1, 2): 5, (2, -1): 8}
    found = match_groups(rows, {0: 59, 1: 70, 2: 8, -1: 5}, {0: 30, 1: 80, 2: 70, 3: 4, -1: 8})
    assert [(g["before"], g["after"], g["change"], g["nearest"]) for g in found] == [
        (0, 1, "grown", None),
        (1, 2, "same size", None),
        (2, None, "gone", None),
        (None, 0, "born", 1),
        (None, 3, "born", None),
    ]


def test_versions_that_are_left_out_are_the_current_one_and_the_one_before(tmp_path: Path) -> None:
    """The front page took the first by name, which after the second night was the current one itself."""
    nights(tmp_path / "data", 160)
    out = tmp_path / "out"
    made = [run(recipe(tmp_path)).version]
    with pytest.raises(InputError, match=f"no version that was published before {made[0]}. Run the recipe"):
        version_before(out, made[0])
    for night in (1, 2):
        add_night(tmp_path, spurious_table(40, seed=night), f"z{night}")
        made.append(run(recipe(tmp_path)).version)
    for names, then in (((), made[1]), ((made[0],), made[0])):
        shown = CliRunner().invoke(app, ["diff", *names, "--output", str(out), "--json"])
        assert [json.loads(shown.stdout)[side] for side in ("before", "after")] == [then, made[2]]
    same = CliRunner().invoke(app, ["diff", made[0], made[0], "--output", str(out)])
    assert f"{made[0]} is compared with itself, so that nothing differs" in same.stdout
    alone = CliRunner().invoke(app, ["diff", made[0]])
    assert alone.exit_code == 2
    assert f"rowsieve diff {made[0]}: name two versions, or give --output OUTPUT" in alone.stderr
    places = [f"{out}@{made[0]}", f"{out}/versions/{made[1]}"]
    shown = CliRunner().invoke(app, ["diff", *places, "--output", str(out), "--json"])
    assert [json.loads(shown.stdout)[side] for side in ("before", "after")] == made[:2]
    nowhere = CliRunner().invoke(app, ["diff", *made[:2]])
    assert nowhere.exit_code == 2
    assert f"--output OUTPUT, or OUTPUT@{made[0]}." in " ".join(nowhere.stderr.split())
    for words in (["groups", places[0]], ["explain", places[0], "3"]):
        twice = CliRunner().invoke(app, [*words, "--version", made[1]])
        assert twice.exit_code == 2
        assert f"names a version already. Leave out --version {made[1]}" in " ".join(twice.stderr.split())


def test_history_diff_and_prune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights(tmp_path / "data", 160, 80)
    out = tmp_path / "out"
    with pytest.raises(InputError, match="no published version"):
        history(out)
    made = []
    for night in range(3):
        if night:
            add_night(tmp_path, spurious_table(40 + night, seed=night), f"z{night}")
        made.append(run(recipe(tmp_path)).version)
    entries = history(out)
    assert [entry["version"] for entry in entries] == made[::-1]
    assert [entry["base"] for entry in entries] == [made[1], made[0], None]
    assert [entry["current"] for entry in entries] == [True, False, False]
    shown = CliRunner().invoke(app, ["diff", made[0], made[1], "--output", str(out), "--json"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["rows"] == {"before": 240, "after": 281, "common": 240, "gone": 0, "new": 41}
    assert found["changed"]["group"]["rows"] == 0
    assert CliRunner().invoke(app, ["diff", f"{out}@{made[0]}", f"{out}@{made[2]}"]).exit_code == 0
    assert CliRunner().invoke(app, ["versions", str(out)]).exit_code == 0
    monkeypatch.setattr(history_module, "_models", lambda *_, **__: {made[0]: ["m 1"]})
    done = prune(out, 1)
    assert done.versions == (made[1],)
    assert done.kept_for == {made[0]: "models lead back to it: m 1"}
    needed = {entry["fingerprint"] for name in (made[0], made[2]) for entry in operators(out, name)}
    assert {path.name for path in (out / "store").iterdir()} == needed
    assert done.fingerprints
    assert run(recipe(tmp_path)).reused  # nothing that it needs is gone
    with pytest.raises(InputError, match=f"{made[1]} .*was removed from"):
        open_version(f"{out}@{made[1]}")
    refused = CliRunner().invoke(app, ["versions", str(out), "prune"])
    assert refused.exit_code == 2
    assert "--keep" in refused.output


def operators(out: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_version(f"{out}@{name}").manifest["operators"]
    return found
