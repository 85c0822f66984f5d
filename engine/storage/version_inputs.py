"""Rows and recipe of a version: what a withdrawal speaks of, whatever releases of the operators ran.

Two versions have the same *rows* if they read the same bytes in the same way, and the same *recipe* if the
label, the features, the columns, the seed, the operators and their parameters are the same. Versions of the
operators' methods are not part of the recipe, nor is a parameter that one of the two releases does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from engine.core.digests import digest
from operators.immutable_model import ImmutableModel

_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class MethodRecord(ImmutableModel):
    """An operator of a version: its method's version, and digests of its parameters and its files."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: int
    params: dict[str, _Digest]
    files: _Digest


class InputRecord(ImmutableModel):
    """Rows and recipe of a version, by digests."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rows: _Digest
    settings: _Digest
    operators: dict[str, MethodRecord]


@dataclass(frozen=True)
class Inputs:
    """Rows and recipe of a version.

    Attributes
    ----------
    record
        Both, by digests.
    shards
        Digest of each shard's bytes, and of how they are read.
    exact
        Digest of all with the operators' versions, as earlier releases compared them.

    """

    record: InputRecord
    shards: frozenset[str]
    exact: str

    def is_same_recipe(self, then: InputRecord) -> bool:
        """Return whether rows and recipe are those of an earlier version."""
        now = self.record
        if (now.rows, now.settings) != (then.rows, then.settings):
            return False
        if now.operators.keys() != then.operators.keys():
            return False
        return all(_is_same(now.operators[name], then.operators[name]) for name in now.operators)

    def upgraded_since(self, then: InputRecord) -> tuple[str, ...]:
        """Return the operators whose method has another version, as texts with both numbers."""
        return tuple(
            f"{name} (version {then.operators[name].version} then, {now.version} now)"
            for name, now in self.record.operators.items()
            if name in then.operators and then.operators[name].version != now.version
        )


def inputs_of(record: Mapping[str, Any]) -> Inputs:
    """Return the rows and the recipe of a manifest, or of a plan in its form.

    Names and contents of two versions with the same may differ: they also depend on the base version, on the
    order of the shards, and on the releases of the operators.
    """
    source = record["source"]
    shards = [
        [str(source["files"].get(shard["path"])), [*shard.get("range", (0, 0))], shard["rows"]]
        for shard in source["shards"]
    ]
    read = [source["label"], source["features"], source.get("on_corrupt", "fail")]
    ours = {column["name"] for column in record.get("outputs", ())}
    columns = [column for column in record["schema"] if column["name"] not in ours]
    names = [column["name"] for column in record.get("outputs", ())][:1]  # with the prefix of the recipe
    methods = {
        entry["name"]: MethodRecord(
            version=entry["version"],
            params={key: digest(value) for key, value in entry["params"].items()},
            files=digest(list(entry.get("files") or ())),
        )
        for entry in record["operators"]
    }
    known = InputRecord(
        rows=digest(sorted(shards)),
        settings=digest([record["seed"], read, columns, names]),
        operators=methods,
    )
    keys = ("name", "version", "params", "requires", "files")
    operators = [{key: entry.get(key) for key in keys} for entry in record["operators"]]
    exact = digest([record["seed"], read, record["schema"], operators, sorted(shards)])
    return Inputs(known, frozenset(digest(shard) for shard in shards), exact)


def _is_same(now: MethodRecord, then: MethodRecord) -> bool:
    """Return whether files and the parameters that both releases know are equal."""
    common = now.params.keys() & then.params.keys()
    return now.files == then.files and all(now.params[key] == then.params[key] for key in common)
