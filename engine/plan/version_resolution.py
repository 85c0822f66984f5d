"""The last step of planning: the increment is resolved, then fingerprints and the version are computed.

A fingerprint covers an operator, its parameters and the fingerprints of the operators it reads from. The name
of a version is a digest of the content and of all fingerprints. A replayed fingerprint (see
:meth:`engine.storage.run_store.RunStore.replay`) is replaced by another one, so that its work is done again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from connectors.files import identity
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.output_layout import FORMAT, output_of
from engine.plan.decisions import DecisionProbe, decide_outcome, read_decision
from engine.plan.increment import Increment, Outcome, actions_of, is_up_to_date, reordered
from engine.plan.model import Plan, PlannedOperator
from engine.plan.shard_matching import Matching, match_shards
from engine.recipe.recipe import Recipe
from engine.storage.identity_cache import IdentityCache
from operators.base import Operator, OperatorError
from operators.parts.adaptor import NAME as PARTS


def resolve_version(
    draft: Plan, known: tuple[str, Mapping[str, Any]] | None, probe: DecisionProbe | None
) -> Plan:
    """Return the plan with its increment, fingerprints and version.

    Parameters
    ----------
    draft
        The plan without fingerprints and version.
    known
        The base version and its manifest; None where there is none.
    probe
        Computes what the decision of an increment depends on. Without it, an increment that no
        earlier run has decided stays undecided, and the plan assumes the most likely outcome.

    Raises
    ------
    InputError
        The increment cannot be carried out.

    """
    if known is None:
        return _with_version(draft, None)
    base, manifest = known
    matching = match_shards(draft.listing, manifest)
    _check_positions(draft, matching)
    draft = replace(draft, listing=reordered(draft.listing, matching))
    record, source = draft.to_dict(), manifest["source"]
    same = (manifest["schema"], {*source.get("skipped", {})}) == (record["schema"], {*record["skipped"]})
    if same and is_up_to_date(manifest, matching, draft.operators, draft.recipe, draft.store):
        return _as_published(draft, base, manifest)
    first: Outcome = "refit" if draft.recipe.incremental.mode == "refit" else "predict"
    undecided = _with_version(draft, Increment(base, manifest, matching, first, {}))
    decision = read_decision(undecided)
    if decision is None and matching.new and probe is not None:
        decision = decide_outcome(undecided, probe)
    return undecided if decision is None else resolve_increment(undecided, decision)


def resolve_increment(plan: Plan, decision: Mapping[str, Any]) -> Plan:
    """Return an undecided plan with the operators, fingerprints and version of the decided outcome."""
    if plan.increment is None:
        return plan
    return _with_version(plan, replace(plan.increment, decision=decision, outcome=decision["outcome"]))


def with_file_identities(recipe: Recipe, chain: list[Operator[Any]]) -> tuple[PlannedOperator, ...]:
    """Return the operators with the identities of the files that they read in addition to the source.

    The operators have no fingerprints yet. Raises InputError if a file cannot be used.
    """
    cache = IdentityCache(output_of(recipe.output.path) / "identities.json", identity)
    try:
        files = [operator.files for operator in chain]
    except OperatorError as error:
        raise InputError(str(error)) from None
    return tuple(
        PlannedOperator(operator, "", files=tuple(cache.identities(paths).values()) if paths else ())
        for operator, paths in zip(chain, files, strict=True)
    )


def _check_positions(plan: Plan, matching: Matching) -> None:
    """Raise InputError if rows change places under an operator that reads files by position."""
    by_position = [planned.name for planned in plan.operators if planned.operator.files]
    if by_position and list(matching.order) != sorted(matching.order):
        raise InputError(
            f"operators.{by_position[0]}: it reads stored rows by position, in the order of the source's "
            f"files; incremental.base puts new files last, though they sort before others. Name new files "
            f"so that they sort last, or leave incremental.base out."
        )


def _as_published(plan: Plan, version: str, manifest: Mapping[str, Any]) -> Plan:
    """Return the plan with the fingerprints and the name of a version that is published already."""
    prints = {entry["name"]: entry["fingerprint"] for entry in manifest["operators"]}
    operators = tuple(replace(planned, fingerprint=prints[planned.name]) for planned in plan.operators)
    return replace(
        plan, operators=operators, fingerprint=str(manifest.get("fingerprint", "")), version=version
    )


def _with_version(plan: Plan, increment: Increment | None) -> Plan:
    """Return the plan with its fingerprints, its version, and the actions of its increment."""
    recipe, listing = plan.recipe, plan.listing
    if increment is not None:
        matching, outcome = increment.matching, increment.outcome
        actions = actions_of(plan.operators, recipe, plan.store, increment.manifest, matching, outcome)
        increment = replace(increment, actions=actions)
    content = digest([[s.start, s.stop, s.n_rows, listing.identities[s.path]] for s in listing.shards])
    if recipe.source.on_corrupt == "skip":  # a version that skipped a shard is not the one that reads it
        content = digest([content, "skip"])
    planned = _fingerprints(plan, content, increment)
    base = [increment.manifest["content"]] if increment else []
    # Not part of the content, since the operators' work on the other files is the same.
    left_out = [sorted(listing.skipped)] if listing.skipped else []
    fingerprint = digest([content, [p.fingerprint for p in planned], *base, *left_out])
    version = "v" + digest([FORMAT, fingerprint, recipe.output.prefix])[:12]
    return replace(plan, operators=planned, fingerprint=fingerprint, version=version, increment=increment)


def _fingerprints(plan: Plan, content: str, increment: Increment | None) -> tuple[PlannedOperator, ...]:
    """Return the operators with fingerprints. Each covers only the operators that this one reads from."""
    replays, seed = plan.store.replays(), plan.recipe.seed
    adder: dict[str, str] = {}
    found: list[PlannedOperator] = []
    by_name: dict[str, str] = {}
    for planned in plan.operators:
        operator = planned.operator
        inputs = {adder[column] for column in operator.requires}
        inputs |= {by_name[name] for name in operator.uses}
        if "ingest" in by_name:
            inputs.add(by_name["ingest"])
        if PARTS in by_name and operator.learns_from_rows:
            inputs.add(by_name[PARTS])
        params = operator.params.model_dump(mode="json", exclude=set(operator.params.execution_only))
        kept = increment.actions[operator.name].kept if increment else ""
        beside = [list(planned.files)] if planned.files else []
        beside += [["kept", kept]] if kept else []
        value = digest([operator.name, operator.version, params, seed, content, sorted(inputs), *beside])
        while value in replays:  # a replayed fingerprint may have been replayed again
            value = digest([value, "replay", replays[value]])
        adder.update((field.name, value) for field in operator.adds)
        by_name[operator.name] = value
        found.append(replace(planned, fingerprint=value, kept=kept))
    return tuple(found)
