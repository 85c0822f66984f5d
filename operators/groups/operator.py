"""The operator ``groups``, and the class of each method by name.

Methods are the built-in ones and those of other packages (entry-point group ``rowsieve.group_methods``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any

from connectors.foundation.installed import entry_points
from connectors.foundation.messages import nearest
from operators.base import Operator, OperatorError, OperatorParams
from operators.groups.adaptor import class_wise
from operators.groups.base import GroupsBase
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
        "cues": "operators.groups.by_cue:ByCue",
        "none": "operators.groups.by_column:ClassLabel",
        "oracle": "operators.groups.by_column:Oracle",
    }
)
_log = logging.getLogger("rowsieve")


def method_names() -> tuple[str, ...]:
    """Return all known names; a plugin cannot take the name of a built-in method."""
    plugins = {point.name for point in _plugins() if point.name not in BUILT_IN}
    return (*BUILT_IN, *sorted(plugins))


def known_methods() -> dict[str, type[Operator[Any]]]:
    """Return operator classes by name. Plugins that do not load are logged and left out."""
    found: dict[str, type[Operator[Any]]] = {}
    for name in method_names():
        try:
            found[name] = method_class(name)
        except OperatorError:
            continue
    return found


def method_class(name: str) -> type[Operator[Any]]:
    """Return the operator class of a method.

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
    suggestion = nearest(name, others) or f" Known: {', '.join(others)}."
    raise OperatorError(f"operators.groups.method: there is no usable method {name!r}.{suggestion}")


def _plugins() -> tuple[EntryPoint, ...]:
    return entry_points(group=ENTRY_POINTS)


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


def _skip(point: EntryPoint, reason: str) -> None:
    """Log that a plugin is left out, and why."""
    _log.warning("The group method %s (%s) %s; it is skipped.", point.name, point.value, reason)


def _as_operator(found: type[Any]) -> type[Operator[Any]]:
    return class_wise(found) if issubclass(found, GroupMethod) else found


class Groups(GroupsBase[OperatorParams]):
    """Adds ``group`` (-1: in none) and ``group_outlier``, by one of several methods."""

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """Return the class of ``method``, by default ``grasp``. Raises OperatorError for an unknown one."""
        return method_class(str(params.get("method", "grasp")))

    @classmethod
    def variants(cls) -> dict[str, type[Operator[Any]]]:
        """Return all methods that can be loaded, by name."""
        return known_methods()
