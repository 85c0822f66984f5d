"""Names to operators: the built-in ones, and those of other packages by entry point."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any

from connectors.foundation.installed import entry_points
from operators.base import Operator

ENTRY_POINTS = "rowsieve.operators"
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "ingest": "operators.ingest.adaptor:Ingest",
        "encode": "operators.encode.adaptor:Encode",
        "embed": "operators.embed.adaptor:Embed",
        "probe": "operators.probe.adaptor:Probe",
        "gradients": "operators.gradients.adaptor:Gradients",
        "groups": "operators.groups.operator:Groups",
        "outliers": "operators.outliers.adaptor:Outliers",
        "neighbours": "operators.neighbours.adaptor:Neighbours",
        "duplicates": "operators.duplicates.adaptor:DuplicatesOperator",
        "dckm": "operators.dckm.adaptor:Dckm",
        "decorrelation": "operators.dckm.adaptor:Decorrelation",
        "cues": "operators.cues.adaptor:Cues",
        "eos": "operators.eos.adaptor:Eos",
        "weights": "operators.weights.adaptor:Weights",
        "split": "operators.splits.adaptor:Split",
    }
)
BY_ENGINE: Mapping[str, str] = MappingProxyType(
    {
        "parts": "operators.parts.adaptor:RowParts",
        "network_inputs": "operators.embed.network_inputs:NetworkInputs",
    }
)
"""Operators that the engine adds by itself; no recipe names them."""
_log = logging.getLogger("rowsieve")


def operator_names() -> tuple[str, ...]:
    """Return all known names; a plugin cannot take a built-in one's."""
    plugins = [point.name for point in _plugins() if point.name not in {**BUILT_IN, **BY_ENGINE}]
    return (*BUILT_IN, *sorted(plugins))


def operator_class(name: str) -> type[Operator[Any]]:
    """Return the class behind a name. Raises KeyError for an unknown name or a plugin that does not load."""
    built_in = {**BUILT_IN, **BY_ENGINE}
    if name in built_in:
        module, _, attribute = built_in[name].partition(":")
        found: type[Operator[Any]] = getattr(import_module(module), attribute)
        return found
    for point in _plugins():
        if point.name == name:
            return _load(point)
    raise KeyError(name)


def _plugins() -> tuple[EntryPoint, ...]:
    return entry_points(group=ENTRY_POINTS)


def _load(point: EntryPoint) -> type[Operator[Any]]:
    try:
        found = point.load()
    except Exception as error:
        _log.warning(
            "The operator plugin %s (%s) does not load and is skipped: %s", point.name, point.value, error
        )
        raise KeyError(point.name) from error
    if not (isinstance(found, type) and issubclass(found, Operator)):
        _log.warning(
            "The operator plugin %s (%s) is not an operators.base.Operator; skipped", point.name, point.value
        )
        raise KeyError(point.name)
    return found
