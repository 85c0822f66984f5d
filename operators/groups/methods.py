"""Names to methods of ``groups``: the built-in ones, and those of other packages by entry point."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from operators.base import Operator, OperatorError
from operators.groups.classwise import class_wise
from operators.groups.kernel import GroupMethod

ENTRY_POINTS = "rowsieve.group_methods"
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "grasp": "operators.grasp.adaptor:Groups",
        "feasp": "operators.grasp.adaptor:Groups",
        "kmeans": "operators.groups.kmeans:KMeans",
        "george": "operators.groups.george:George",
        "eiil": "operators.groups.by_model:Eiil",
        "jtt": "operators.groups.by_model:Jtt",
        "none": "operators.groups.by_column:ClassLabel",
        "oracle": "operators.groups.by_column:Oracle",
    }
)
_log = logging.getLogger("rowsieve")


def method_names() -> tuple[str, ...]:
    """All known names; a plugin cannot take a built-in one's."""
    plugins = {point.name for point in _plugins() if point.name not in BUILT_IN}
    return (*BUILT_IN, *sorted(plugins))


def known_methods() -> dict[str, type[Operator[Any]]]:
    """Name -> operator class; plugins that do not load are left out, and named in the log."""
    found: dict[str, type[Operator[Any]]] = {}
    for name in method_names():
        try:
            found[name] = method_class(name)
        except OperatorError:
            continue
    return found


def method_class(name: str) -> type[Operator[Any]]:
    """The operator class that carries a method out.

    Raises
    ------
    OperatorError
        No such method, or a plugin that does not load; the text has the nearest name.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return _as_operator(getattr(import_module(module), attribute))
    for point in _plugins():
        if point.name == name and (plugin := _load(point)) is not None:
            return plugin
    others = [known for known in method_names() if known != name]
    near = difflib.get_close_matches(name, others, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(others)}."
    raise OperatorError(f"operators.groups.method: there is no usable method {name!r}. {hint}")


def _plugins() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=ENTRY_POINTS))


def _load(point: EntryPoint) -> type[Operator[Any]] | None:
    try:
        found = point.load()
    except Exception as error:
        _skip(point, f"does not load: {type(error).__name__}: {error}")
        return None
    if not (isinstance(found, type) and issubclass(found, (GroupMethod, Operator))):
        _skip(point, "is neither an operators.groups.GroupMethod nor an operators.base.Operator")
        return None
    fields = getattr(getattr(found, "Params", None), "model_fields", {})
    if "method" not in fields:
        _skip(point, "has no Params with a field 'method' that names it")
        return None
    return _as_operator(found)


def _skip(point: EntryPoint, why: str) -> None:
    _log.warning("The group method %s (%s) %s; it is skipped.", point.name, point.value, why)


def _as_operator(found: type[Any]) -> type[Operator[Any]]:
    return class_wise(found) if issubclass(found, GroupMethod) else found
