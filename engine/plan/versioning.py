"""The last step of planning: content, fingerprints and version; and what is kept of a base version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from connectors.files import identity
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.output_layout import FORMAT, output_of
from engine.plan.increment import Increment, Outcome, actions_of, base_of, covers, reordered
from engine.plan.model import Plan, PlannedOperator
from engine.plan.shard_matching import Matching
from engine.recipe.recipe import Recipe
from engine.storage.identity_cache import IdentityCache
from operators.base import Operator, OperatorError


def decided(plan: Plan, decision: Mapping[str, Any]) -> Plan:
    """The plan of an incremental run whose outcome is decided: with the outcome's operators and version."""
    found = plan.increment
    if found is None:
        return plan
    found = replace(found, decision=decision)
    return _frozen(plan, replace(found, outcome=decision["outcome"]))


def freeze(plan: Plan) -> Plan:
    """The plan with its fingerprints and version, going on from the recipe's base where it names one.

    Raises InputError where that version is not there.
    """
    # Not at the top: it imports the run.
    from engine.plan.decisions import read_decision

    recipe, known = plan.recipe, base_of(plan.recipe, plan.listing)
    if known is None:
        return _frozen(plan, None)
    base, manifest, matching = known
    _check_positions(plan, matching)
    plan = replace(plan, listing=reordered(plan.listing, matching))
    chain = [planned.operator for planned in plan.operators]
    files = {planned.name: planned.files for planned in plan.operators}
    same_schema = manifest["schema"] == plan.to_dict()["schema"]
    if same_schema and covers(manifest, matching, chain, files, recipe):
        return _as_published(plan, base, manifest)
    first: Outcome = "refit" if recipe.incremental.mode == "refit" else "predict"
    plan = _frozen(plan, Increment(base, manifest, matching, first, {}))
    decision = read_decision(plan)
    return plan if decision is None else decided(plan, decision)


def _check_positions(plan: Plan, matching: Matching) -> None:
    """Raise InputError where rows change places under an operator that reads files by position."""
    by_position = [planned.name for planned in plan.operators if planned.operator.files]
    if by_position and list(matching.order) != sorted(matching.order):
        raise InputError(
            f"operators.{by_position[0]}: it reads stored rows by position, in the order of the source's "
            f"files; incremental.base puts new files last, though they sort before others. Name new files "
            f"so that they sort last, or leave incremental.base out."
        )


def _as_published(plan: Plan, version: str, manifest: Mapping[str, Any]) -> Plan:
    prints = {entry["name"]: entry["fingerprint"] for entry in manifest["operators"]}
    operators = tuple(replace(planned, fingerprint=prints[planned.name]) for planned in plan.operators)
    return replace(
        plan, operators=operators, fingerprint=str(manifest.get("fingerprint", "")), version=version
    )


def _frozen(plan: Plan, increment: Increment | None) -> Plan:
    """The plan with its fingerprints and version; an increment's actions are decided here."""
    recipe, listing = plan.recipe, plan.listing
    chain = [planned.operator for planned in plan.operators]
    files = {planned.name: planned.files for planned in plan.operators}
    if increment is not None:
        actions = actions_of(chain, files, recipe, increment.manifest, increment.matching, increment.outcome)
        increment = replace(increment, actions=actions)
    content = digest([[s.start, s.stop, s.n_rows, listing.identities[s.path]] for s in listing.shards])
    if recipe.source.on_corrupt == "skip":  # what was skipped once must not pass for read under `fail`
        content = digest([content, "skip"])
    planned = _fingerprints(plan, content, increment)
    base = [increment.manifest["content"]] if increment else []
    fingerprint = digest([content, [p.fingerprint for p in planned], *base])
    version = "v" + digest([FORMAT, fingerprint, recipe.output.prefix])[:12]
    return replace(plan, operators=planned, fingerprint=fingerprint, version=version, increment=increment)


def unprinted(recipe: Recipe, chain: list[Operator[Any]]) -> tuple[PlannedOperator, ...]:
    """The operators with the identities of files that they read beside the source. Raises InputError."""
    cache = IdentityCache(output_of(recipe.output.path) / "identities.json", identity)
    try:
        files = [operator.files for operator in chain]
    except OperatorError as error:
        raise InputError(str(error)) from None
    return tuple(
        PlannedOperator(operator, "", files=tuple(cache.identities(paths).values()) if paths else ())
        for operator, paths in zip(chain, files, strict=True)
    )


def _fingerprints(plan: Plan, content: str, increment: Increment | None) -> tuple[PlannedOperator, ...]:
    """Each operator's fingerprint covers only those it reads from, so that others may change freely."""
    again, seed = plan.store.replays(), plan.recipe.seed
    adder: dict[str, str] = {}
    found: list[PlannedOperator] = []
    by_name: dict[str, str] = {}
    for planned in plan.operators:
        operator = planned.operator
        inputs = {adder[column] for column in operator.requires}
        inputs |= {by_name[name] for name in operator.uses}
        if "ingest" in by_name:
            inputs.add(by_name["ingest"])
        params = operator.params.model_dump(mode="json", exclude=set(operator.params.execution_only))
        kept = increment.actions[operator.name].kept if increment else ""
        beside = [list(planned.files)] if planned.files else []
        beside += [["kept", kept]] if kept else []
        value = digest([operator.name, operator.version, params, seed, content, sorted(inputs), *beside])
        if value in again:
            value = digest([value, "replay", again[value]])
        adder.update((field.name, value) for field in operator.adds)
        by_name[operator.name] = value
        found.append(replace(planned, fingerprint=value, kept=kept))
    return tuple(found)
