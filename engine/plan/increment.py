"""What an incremental run keeps of its base and what it learns again: decided before anything runs.

An operator that keeps its base's state reuses the base's sidecars for shards that were there, and places the
rows of new shards. Every other one is fitted again, on all rows. Nothing here reads a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from connectors.base import Listing
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.core.redaction import redact_all
from engine.plan.shard_matching import Matching, match
from engine.recipe.recipe import Recipe
from engine.storage.manifest import current_version, read_manifest
from engine.storage.run_store import RunStore
from engine.storage.stores import store_of as open_store
from operators.base import Operator

Outcome = Literal["predict", "refit", "full"]
"""What the run comes to: everything that can is kept; operators learn again but for those in
``incremental.keep``; or everything is computed again."""


@dataclass(frozen=True)
class Action:
    """What one operator does."""

    kept: str = ""
    """Fingerprint of the base whose state and sidecars it goes on from; empty: it is fitted again."""
    reason: str = ""
    """Why it is fitted again."""


@dataclass(frozen=True)
class Increment:
    """A plan's place after its base version."""

    base: str
    manifest: Mapping[str, Any]
    matching: Matching
    outcome: Outcome
    actions: Mapping[str, Action]
    decision: Mapping[str, Any] | None = None
    """How the outcome was decided once the new rows had been looked at; None until then."""

    @property
    def undecided(self) -> bool:
        """Whether new rows have yet to be looked at."""
        return self.decision is None and self.matching.new > 0

    def record(self) -> dict[str, Any]:
        """JSON-able; part of the manifest."""
        matching = self.matching
        return {
            "base": self.base,
            "base_content": self.manifest["content"],
            "shards": {"old": len(matching.old), "new": matching.new, "gone": matching.gone},
            "changed_files": list(matching.changed),
            "outcome": self.outcome,
            "kept": [name for name, action in self.actions.items() if action.kept],
            "fitted": {name: action.reason for name, action in self.actions.items() if not action.kept},
            **(dict(self.decision) if self.decision else {}),
        }


def base_of(recipe: Recipe, listing: Listing) -> tuple[str, dict[str, Any], Matching] | None:
    """The base version, its manifest, and the listing beside it; None where there is no base (yet).

    Raises InputError where the recipe names a version that is not there.
    """
    # Not at the top: publishing imports plans.
    from engine.core.output_layout import version_folder
    from engine.storage.manifest import is_published

    name, output = recipe.incremental.base, output_of(recipe.output.path)
    if name is None:
        return None
    named = name != "current"
    name = name if named else current_version(output)
    if name is None:
        return None
    if not is_published(output, name):
        if named:
            raise InputError(
                f"incremental.base: {output} holds no published version {name!r}. Name one of "
                f"`rowsieve versions {output}`, or `current`."
            )
        return None
    manifest = read_manifest(version_folder(output, name))
    return name, manifest, match(listing, manifest)


def reordered(listing: Listing, matching: Matching) -> Listing:
    """The listing with the base's shards first, so that their rows keep their ids where none is gone."""
    return replace(listing, shards=tuple(listing.shards[index] for index in matching.order))


def store_of(recipe: Recipe) -> RunStore:
    """The run store of a recipe's output."""
    return open_store(output_of(recipe.output.path))


def entry_of(operator: Operator[Any], files: Sequence[str]) -> dict[str, Any]:
    """What a manifest says of an operator but for its fingerprint; ``files``: identities of what it reads."""
    params = operator.params.model_dump(mode="json", exclude=set(operator.params.execution_only))
    found: dict[str, Any] = redact_all(
        {
            "name": operator.name,
            "version": operator.version,
            "params": params,
            "requires": list(operator.requires),
            "files": list(files),
        }
    )
    return found


def covers(
    manifest: Mapping[str, Any],
    matching: Matching,
    chain: Sequence[Operator[Any]],
    files: Mapping[str, Sequence[str]],
    recipe: Recipe,
) -> bool:
    """Whether a version is what this recipe makes of this input: then there is nothing to do."""
    if matching.new or matching.gone or not _same_recipe(manifest, recipe):
        return False
    entries = {entry["name"]: entry for entry in manifest["operators"]}
    if set(entries) != {operator.name for operator in chain}:
        return False
    store = store_of(recipe)
    again, n_shards = store.replays(), len(matching.order)
    for operator in chain:
        fingerprint = entries[operator.name]["fingerprint"]
        same = _same(entries[operator.name], operator, files.get(operator.name, ()))
        if not same or fingerprint in again:
            return False
        if not _there(store, fingerprint, range(n_shards)):
            return False
    return True


def actions_of(
    chain: Sequence[Operator[Any]],
    files: Mapping[str, Sequence[str]],
    recipe: Recipe,
    manifest: Mapping[str, Any],
    matching: Matching,
    outcome: Outcome,
) -> dict[str, Action]:
    """What every operator does; ``chain`` is in order."""
    entries = {entry["name"]: entry for entry in manifest["operators"]}
    store = store_of(recipe)
    again, usable = store.replays(), _same_recipe(manifest, recipe)
    adder: dict[str, str] = {}
    found: dict[str, Action] = {}
    for operator in chain:
        entry = entries.get(operator.name, {})
        inputs = sorted({adder[column] for column in operator.requires} | set(operator.uses))
        changed = [name for name in inputs if not found[name].kept]
        fingerprint = str(entry.get("fingerprint", ""))
        reason = ""
        if outcome == "full" or not usable:
            reason = "everything is computed again" if usable else "the base has another seed or source"
        elif not entry or not _same(entry, operator, files.get(operator.name, ())):
            reason = "it is new in the recipe" if not entry else "its parameters or its inputs have changed"
        elif not operator.can_predict:
            reason = "it cannot place new rows"
        elif changed:
            reason = f"{changed[0]} is fitted again"
        elif outcome == "refit" and operator.name not in recipe.incremental.keep:
            reason = "it learns from all rows"
        elif operator.partial_fit_changes_rows and matching.gone:
            reason = "rows are gone"
        elif fingerprint in again:
            reason = "rows that were set aside are tried again"
        elif not _there(store, fingerprint, matching.old):
            reason = "the store no longer has what it left"
        found[operator.name] = Action("" if reason else fingerprint, reason)
        adder.update((field.name, operator.name) for field in operator.adds)
    return found


def _same(entry: Mapping[str, Any], operator: Operator[Any], files: Sequence[str]) -> bool:
    """A version made before manifests named ``requires`` is never the same."""
    return all(entry.get(key) == value for key, value in entry_of(operator, files).items())


def _same_recipe(manifest: Mapping[str, Any], recipe: Recipe) -> bool:
    corrupt = manifest["source"].get("on_corrupt", "fail")
    return bool(manifest["seed"] == recipe.seed and corrupt == recipe.source.on_corrupt)


def _there(store: RunStore, fingerprint: str, shards: Sequence[int]) -> bool:
    if store.fitted(fingerprint) is None:
        return False
    return set(shards) <= set(store.committed(fingerprint))
