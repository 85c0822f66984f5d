"""Decides which operators of an incremental run keep the base version's state and which are fitted again.

An operator that keeps its state reuses the base's sidecars for the old shards and computes only the rows of
new shards. Every other operator is fitted again, on all rows. Nothing here reads a row: the functions compare
a manifest with a listing, a recipe and the records of the run store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from connectors.base import Listing
from connectors.foundation.immutable import freeze_fields
from connectors.foundation.messages import shorten
from engine.core.errors import InputError
from engine.core.output_layout import output_of, version_folder
from engine.core.redaction import redact_all
from engine.plan.refit_reasons import Cause, Reason
from engine.plan.shard_matching import Matching
from engine.recipe.recipe import Recipe
from engine.storage.manifest import is_published, read_manifest
from engine.storage.run_store import RunStore
from engine.storage.withdrawals import check_stands, current_version
from operators.base import Operator
from operators.parts.adaptor import NAME as PARTS

Outcome = Literal["predict", "refit", "full"]
"""predict: every operator that can keeps its state. refit: only the operators in ``incremental.keep`` keep
theirs. full: everything is computed again."""
MAX_TOLD = 5
"""Columns, new or gone, that a reason names."""


@dataclass(frozen=True)
class PlannedOperator:
    """One operator with its place in the plan. The operator cannot be changed any more."""

    operator: Operator[Any]
    fingerprint: str
    kept: str = ""
    """Fingerprint of the base version's operator whose state and sidecars this one reuses; empty: none."""
    files: tuple[str, ...] = ()
    """Identities of the files that the operator reads in addition to the source."""

    def __post_init__(self) -> None:
        self.operator.freeze()

    @property
    def name(self) -> str:
        """The operator's name in the recipe."""
        return self.operator.name

    @property
    def params(self) -> dict[str, Any]:
        """The parameters that decide values, without those that only say where the operator runs."""
        params = self.operator.params
        found: dict[str, Any] = params.model_dump(mode="json", exclude=set(params.execution_only))
        return found


@dataclass(frozen=True)
class Action:
    """Decision of an incremental run: it reuses the state of one operator, or fits it again."""

    kept: str = ""
    """Fingerprint of the base version's operator whose state and sidecars are reused; empty: fitted again."""
    reason: Reason | None = None
    """Reason for fitting the operator again; None if it is reused."""


@dataclass(frozen=True)
class Increment:
    """Continuation of a plan from its base version."""

    base: str
    manifest: Mapping[str, Any]
    matching: Matching
    outcome: Outcome
    actions: Mapping[str, Action]
    decision: Mapping[str, Any] | None = None
    """Record of the decision; None until the new rows have been examined."""

    def __post_init__(self) -> None:
        """Copy the mappings, so that whoever passed them cannot change them."""
        freeze_fields(self.__dict__)

    @property
    def undecided(self) -> bool:
        """Return whether there are new rows that nobody has examined yet."""
        return self.decision is None and self.matching.new > 0

    def record(self) -> dict[str, Any]:
        """Return the increment as JSON-able values, as the manifest holds it."""
        matching = self.matching
        return {
            "base": self.base,
            "base_content": self.manifest["content"],
            "shards": {"old": len(matching.old), "new": matching.new, "gone": matching.gone},
            "changed_files": list(matching.changed),
            "outcome": self.outcome,
            "kept": [name for name, action in self.actions.items() if action.kept],
            "fitted": {name: str(action.reason) for name, action in self.actions.items() if not action.kept},
            **(dict(self.decision) if self.decision else {}),
        }


def find_base(recipe: Recipe) -> tuple[str, dict[str, Any]] | None:
    """Return the base version and its manifest; None if there is no base.

    Raises InputError if the recipe names a version that does not exist.
    """
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
    if named:
        check_stands(output, name)
    return name, read_manifest(version_folder(output, name))


def with_columns_of(manifest: Mapping[str, Any], listing: Listing) -> Listing:
    """Return the listing with its columns in the base's order, then the others.

    Columns are listed in the order of the file whose name sorts first, which may be a new one.
    """
    known = [str(entry["name"]) for entry in manifest["schema"]]
    place = {name: index for index, name in enumerate(known)}
    fields = sorted(listing.schema, key=lambda field: place.get(field.name, len(known)))
    return replace(listing, schema=pa.schema(fields, listing.schema.metadata))


def reordered(listing: Listing, matching: Matching) -> Listing:
    """Return the listing with the base's shards first, so that their row ids stay unless a shard is gone."""
    return replace(listing, shards=tuple(listing.shards[index] for index in matching.order))


def manifest_entry(planned: PlannedOperator) -> dict[str, Any]:
    """Return the manifest's entry of an operator, without its fingerprint."""
    operator = planned.operator
    found: dict[str, Any] = redact_all(
        {
            "name": operator.name,
            "version": operator.version,
            "params": planned.params,
            "requires": list(operator.requires),
            "files": list(planned.files),
        }
    )
    return found


def is_up_to_date(
    manifest: Mapping[str, Any],
    matching: Matching,
    operators: Sequence[PlannedOperator],
    recipe: Recipe,
    store: RunStore,
) -> bool:
    """Return whether this recipe would make exactly the base version from this input."""
    if matching.new or matching.gone or not _same_recipe(manifest, recipe):
        return False
    if recipe.incremental.mode == "refit" and _kept_states(manifest) - {*recipe.incremental.keep, PARTS}:
        return False
    entries = {entry["name"]: entry for entry in manifest["operators"]}
    if set(entries) != {planned.name for planned in operators}:
        return False
    replays, n_shards = store.replays(), len(matching.order)
    for planned in operators:
        fingerprint = entries[planned.name]["fingerprint"]
        if not _same(entries[planned.name], planned) or fingerprint in replays:
            return False
        if not _is_complete(store, fingerprint, range(n_shards)):
            return False
    return True


def _kept_states(manifest: Mapping[str, Any]) -> set[str]:
    """Return the operators of a version whose states are those of its base."""
    return set((manifest.get("incremental") or {}).get("kept", ()))


def actions_of(
    operators: Sequence[PlannedOperator],
    recipe: Recipe,
    store: RunStore,
    manifest: Mapping[str, Any],
    matching: Matching,
    outcome: Outcome,
) -> dict[str, Action]:
    """Return the action of each operator by name. ``operators`` are in the order of the chain."""
    entries = {entry["name"]: entry for entry in manifest["operators"]}
    draws = any(planned.name == PARTS for planned in operators)
    everything = _reason_for_all(manifest, recipe, outcome)
    other_rows = None if draws == (PARTS in entries) else Reason(Cause.OTHER_ROWS)
    base = _Base(store, store.replays(), matching)
    learn = () if outcome != "refit" else set(entries) - {*recipe.incremental.keep, PARTS}
    adder: dict[str, str] = {}
    found: dict[str, Action] = {}
    for planned in operators:
        operator = planned.operator
        entry = entries.get(operator.name, {})
        drawn = {PARTS} if draws and operator.learns_from_rows else set()
        inputs = sorted({adder[column] for column in operator.requires} | set(operator.uses) | drawn)
        changed = [name for name in inputs if not found[name].kept]
        reason = everything or (other_rows if operator.learns_from_rows else None)
        reason = reason or base.reason_to_fit(planned, entry, changed, learns=operator.name in learn)
        found[operator.name] = Action("" if reason else str(entry["fingerprint"]), reason)
        adder.update((field.name, operator.name) for field in operator.adds)
    return found


@dataclass(frozen=True)
class _Base:
    """Facts about the base version that decide whether its states can be kept."""

    store: RunStore
    replays: Mapping[str, int]
    matching: Matching

    def reason_to_fit(
        self, planned: PlannedOperator, entry: Mapping[str, Any], changed: Sequence[str], *, learns: bool
    ) -> Reason | None:
        """Return why an operator is fitted again; None if it is not.

        Parameters
        ----------
        entry
            The operator's entry in the base's manifest; empty if the base has no such operator.
        changed
            Operators that are fitted again and that this one reads from.
        learns
            Whether the decision is that this operator learns from all rows.

        """
        operator = planned.operator
        if not entry:
            return Reason(Cause.NEW)
        if changes := _changes(entry, planned):
            return changes
        if not operator.can_predict:
            return Reason(Cause.CANNOT_PLACE)
        if changed:
            return Reason(Cause.READS_FITTED, changed[0])
        if learns:
            return Reason(Cause.LEARNS)
        if self.matching.gone and (operator.partial_fit_changes_rows or operator.state_needs_row_ids):
            return Reason(Cause.ROWS_GONE)
        if entry["fingerprint"] in self.replays:
            return Reason(Cause.REPLAYED)
        if not _is_complete(self.store, str(entry["fingerprint"]), self.matching.old):
            return Reason(Cause.NOT_STORED)
        return None


def _reason_for_all(manifest: Mapping[str, Any], recipe: Recipe, outcome: Outcome) -> Reason | None:
    """Return why every operator is fitted again; None if not all are."""
    if not _same_recipe(manifest, recipe):
        return Reason(Cause.OTHER_BASE)
    return Reason(Cause.FULL) if outcome == "full" else None


def _same(entry: Mapping[str, Any], planned: PlannedOperator) -> bool:
    """Return whether an entry of a manifest describes this operator. One without ``requires`` never does."""
    return _changes(entry, planned) is None


def _changes(entry: Mapping[str, Any], planned: PlannedOperator) -> Reason | None:
    """Return in what an operator differs from its entry of a manifest; None if in nothing."""
    now = manifest_entry(planned)
    if entry.get("version") != now["version"]:
        return Reason(Cause.VERSION, f"{entry.get('version')} then, {now['version']} now")
    then = entry.get("params") or {}
    names = [key for key in {**then, **now["params"]} if then.get(key) != now["params"].get(key)]
    if names or then.keys() != now["params"].keys():
        told = [name + _difference(then.get(name), now["params"].get(name)) for name in sorted(names)]
        return Reason(Cause.PARAMETERS, ", ".join(told) or "defaults")
    same = all(entry.get(key) == value for key, value in now.items())
    return None if same else Reason(Cause.INPUTS)


def _difference(then: Any, now: Any) -> str:
    """Return in brackets in which texts two lists differ, such as columns; empty for anything else."""
    if not all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in (then, now)):
        return ""
    before, after = set(then), set(now)
    gone = [f"without {shorten(text)}" for text in then if text not in after]
    new = [f"with {shorten(text)}" for text in now if text not in before]
    told = [*gone, *new] or ["in another order"] * (then != now)
    more = f" and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return f" ({', '.join(told[:MAX_TOLD])}{more})" if told else ""


def _same_recipe(manifest: Mapping[str, Any], recipe: Recipe) -> bool:
    same_rows = manifest["source"].get("on_corrupt", "fail") == recipe.source.on_corrupt
    return bool(manifest["seed"] == recipe.seed and same_rows)


def _is_complete(store: RunStore, fingerprint: str, shards: Sequence[int]) -> bool:
    """Return whether the run store has the state and the parts of these shards."""
    if store.fitted(fingerprint) is None:
        return False
    return set(shards) <= set(store.committed(fingerprint))
