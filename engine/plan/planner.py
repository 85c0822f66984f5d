"""The planner: turns a recipe into one immutable plan.

Planning reads listings, footers and, for text formats, the bytes once to count rows. It holds nothing whose
size grows with the number of rows, and starts Ray only through a
:class:`~engine.plan.decisions.DecisionProbe`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from connectors.base import ConnectorError
from engine.core.errors import InputError
from engine.core.policy import current_policy
from engine.core.suggestions import explain, nearest
from engine.plan.chain import (
    CONTRACT,
    CUES,
    ENCODE,
    compose,
    resolve_chain,
    topological_order,
    wants_cues,
    wants_verdict,
)
from engine.plan.decisions import DecisionProbe
from engine.plan.exports import open_exports
from engine.plan.fitted_rows import check_keys, row_parts
from engine.plan.model import Plan
from engine.plan.sources import (
    check_source_columns,
    has_scalars,
    list_source,
    resolve_features,
)
from engine.plan.versioning import resolve_version, with_file_identities
from engine.recipe.estimators import is_estimator, missing_library
from engine.recipe.recipe import Recipe
from operators.base import FEATURES, ROW_ID, Operator, OperatorError
from operators.factories import check_allowed
from operators.parts.adaptor import NAME as PARTS
from operators.registry import operator_class, operator_names
from operators.yaml_text import inline_yaml


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
    open_exports(recipe.output.export)  # reports a missing library before anything runs
    check_trained_model(recipe)
    chain = [build_operator(recipe, name, params) for name, params in recipe.operators.items()]
    maker = next((o for o in chain if any(f.name == FEATURES for f in o.adds) and o.name != ENCODE), None)
    try:
        source, listing = list_source(recipe)
    except ConnectorError as error:
        raise InputError(str(error)) from None
    sizes = [(shard.n_rows, shard.n_bytes) for shard in listing.shards]
    current_policy().check_size(recipe.place, sum(n for n, _ in sizes), sum(size for _, size in sizes))
    features = resolve_features(recipe, listing.schema, maker.name if maker else "")
    if features and (ENCODE in recipe.operators or has_scalars(listing.schema, features)):
        maker = build_operator(recipe, ENCODE, encode_params(recipe, features))
        chain = [*(operator for operator in chain if operator.name != ENCODE), maker]
    check_source_columns(chain, recipe, listing.schema)
    check_contract_names(recipe, listing.schema, chain)
    own = () if maker else features
    chain = [build_operator(recipe, "ingest", _ingest_params(recipe, own)), *chain]
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
    compose(chain)
    operators = with_file_identities(recipe, chain)
    return resolve_version(Plan(recipe, source, listing, features, operators, "", "", learnt_from), probe)


def build_operator(recipe: Recipe, name: str, params: dict[str, Any]) -> Operator[Any]:
    """Create an operator from its name and parameters. Raises InputError that names the nearest match."""
    try:
        kind = operator_class(name)
    except KeyError:
        hint = nearest(name, operator_names()) or f" Known operators: {', '.join(operator_names())}."
        raise InputError(f"operators.{name}: there is no such operator.{hint}") from None
    if name == PARTS:
        raise InputError(
            f"operators.{name}: the engine adds it; see operators.split.fit_on and source.holdout."
        )
    if name == "ingest" and "ingest" in recipe.operators:
        raise InputError("operators.ingest: always runs first; set its options under `source`.")
    try:
        kind = kind.variant(params)
        checked = kind.Params.model_validate(params)
        model = getattr(checked, "model", None)
        if isinstance(model, str) and ":" in model:
            check_allowed(model, f"operators.{name}.model")
        return kind(checked)
    except OperatorError as error:
        raise InputError(str(error)) from None
    except ValidationError as error:
        raise InputError(explain(error, kind.Params, recipe.place, prefix=f"operators.{name}.")) from None


def check_trained_model(recipe: Recipe) -> None:
    """Raise InputError if the model to train would import a module that the operator does not allow, or needs
    a library that is not installed.

    Otherwise the training would say so when the version is published.
    """
    model = recipe.train.params.get("model") if recipe.train is not None else None
    if isinstance(model, str) and is_estimator(model):
        if text := missing_library(model):
            raise InputError(text)
    elif isinstance(model, str) and ":" in model:
        try:
            check_allowed(model, "train.params.model")
        except OperatorError as error:
            raise InputError(str(error)) from None


def encode_params(recipe: Recipe, features: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters of `encode`: the recipe's, and the columns that the section `source` names.

    Raises
    ------
    InputError
        The recipe sets what `source` decides, or sets options of a column that is not a feature.

    """
    given, source = recipe.operators.get(ENCODE, {}), recipe.source
    filled = {
        "features": features,
        "explicit": source.features is not None,
        "label": source.label,
        "classes": source.classes,
    }
    for key in filled:
        if key in given:
            raise InputError(f"operators.encode.{key}: set it under `source` instead.")
    columns = given.get("columns")
    for name in columns if isinstance(columns, dict) else ():
        if name not in features:
            hint = nearest(name, features) or f" The features are: {', '.join(features[:30])}."
            raise InputError(f"operators.encode.columns: {name!r} is not a feature of this recipe.{hint}")
    return {**given, **filled}


class TakenNameError(InputError):
    """A source column has the name of a column that Rowsieve adds."""


def check_contract_names(recipe: Recipe, schema: pa.Schema, chain: Sequence[Operator[Any]]) -> None:
    """Raise TakenNameError if a source column has the name of a column that Rowsieve adds."""
    prefix = recipe.output.prefix
    ours = [*CONTRACT, *(field for operator in chain for field in operator.publishes)]
    taken = [prefix + field.name for field in ours if prefix + field.name in schema.names]
    if taken:
        other = "rowsieve_" if prefix != "rowsieve_" else "rowsieve2_"
        raise TakenNameError(
            f"The source already has a column named {taken[0]!r}, which Rowsieve adds. Keep both "
            f"with --set output.prefix={other}, or curate(..., prefix='{other}'): the added columns are "
            f"then {other}row_id, {other}group and so on."
        )


def check_internal_names(chain: Sequence[Operator[Any]]) -> None:
    """Raise InputError if an operator is handed a source column and another column of the same name."""
    for operator in chain:
        taken = {ROW_ID, *operator.requires}.intersection(operator.source_columns)
        if taken:
            name = sorted(taken)[0]
            raise InputError(
                f"operators.{operator.name}: the source column {name!r} has the name of a column that "
                f"Rowsieve hands to this operator. Give it another name in the recipe, "
                f"{inline_yaml({'source': {'rename': {name: f'source_{name}'}}})}, or leave it out with "
                f"{inline_yaml({'source': {'exclude': [name]}})}."
            )


def _ingest_params(recipe: Recipe, features: tuple[str, ...]) -> dict[str, Any]:
    source = recipe.source
    return {
        "label": source.label,
        "features": features or None,
        "classes": source.classes,
        "on_error": source.on_error,
        "max_error_rate": source.max_error_rate,
    }
