"""The planner: turns a recipe into one immutable plan.

Planning reads listings, footers and, for text formats, the bytes once to count rows. It holds nothing whose
size grows with the number of rows, and starts Ray only through a
:class:`~engine.plan.decisions.DecisionProbe`.
"""

from __future__ import annotations

from connectors.base import ConnectorError
from engine.core.errors import InputError
from engine.core.output_layout import output_of
from engine.core.policy import current_policy
from engine.plan.chain import (
    CUES,
    ENCODE,
    check_composition,
    resolve_chain,
    topological_order,
    wants_cues,
    wants_verdict,
)
from engine.plan.column_names import check_contract_names, check_internal_names
from engine.plan.decisions import DecisionProbe
from engine.plan.exports import open_exports
from engine.plan.fitted_rows import check_keys, row_parts
from engine.plan.increment import find_base, with_columns_of
from engine.plan.model import Plan
from engine.plan.operator_setup import build_operator, encode_params, ingest_params
from engine.plan.output_place import check_output_apart
from engine.plan.picture_identities import with_picture_identities
from engine.plan.sources import (
    check_answers,
    check_source_columns,
    has_scalars,
    list_source,
    resolve_features,
)
from engine.plan.trained_model_check import check_trained_model
from engine.plan.version_resolution import resolve_version, with_file_identities
from engine.recipe.errors_of_file import errors_of_file
from engine.recipe.recipe import Recipe
from operators.base import FEATURES


def make_plan(recipe: Recipe, probe: DecisionProbe | None = None) -> Plan:
    """Decide everything that a run needs.

    Parameters
    ----------
    recipe
        The checked recipe.
    probe
        Computes what the decision of an incremental run depends on. Without it nothing is computed,
        and an increment that no earlier run has decided stays undecided.

    Raises
    ------
    InputError
        The recipe or its source cannot be used.

    """
    with errors_of_file(recipe):
        return _plan(recipe, probe)


def _plan(recipe: Recipe, probe: DecisionProbe | None) -> Plan:
    open_exports(recipe.output.export, output_of(recipe.output.path))  # before anything runs
    check_trained_model(recipe)
    chain = [build_operator(recipe, name, params) for name, params in recipe.operators.items()]
    maker = next((o for o in chain if any(f.name == FEATURES for f in o.adds) and o.name != ENCODE), None)
    try:
        check_output_apart(recipe)
        source, listing = list_source(recipe)
        listing = with_picture_identities(recipe, chain, source, listing)
        base = find_base(recipe)
    except ConnectorError as error:
        raise InputError(str(error)) from None
    listing = listing if base is None else with_columns_of(base[1], listing)
    sizes = [(shard.n_rows, shard.n_bytes) for shard in listing.shards]
    current_policy().check_size(recipe.place, sum(n for n, _ in sizes), sum(size for _, size in sizes))
    features = resolve_features(recipe, listing.schema, maker.name if maker else "")
    if features and (ENCODE in recipe.operators or has_scalars(listing.schema, features)):
        maker = build_operator(recipe, ENCODE, encode_params(recipe, features))
        chain = [*(operator for operator in chain if operator.name != ENCODE), maker]
    check_source_columns(chain, recipe, listing.schema)
    check_answers(recipe, chain)
    check_contract_names(recipe, listing.schema, chain)
    own = () if maker else features
    chain = [build_operator(recipe, "ingest", ingest_params(recipe, own)), *chain]
    if wants_cues(chain):
        chain.append(build_operator(recipe, CUES, {}))
    if wants_verdict(chain):
        chain.append(build_operator(recipe, "outliers", {}))
    chain = topological_order(resolve_chain(chain))
    features = maker.source_columns if maker else features
    check_keys(recipe, chain, listing.schema)
    parts, learnt_from = row_parts(recipe, chain, features)
    if parts is not None:
        chain = [parts, *resolve_chain([parts, *chain])[1:]]
    check_internal_names(chain)
    check_composition(chain)
    operators = with_file_identities(recipe, chain)
    return resolve_version(
        Plan(
            recipe=recipe,
            source=source,
            listing=listing,
            features=features,
            operators=operators,
            fingerprint="",
            version="",
            learnt_from=learnt_from,
        ),
        base,
        probe,
    )
