"""Parts of a training that installed packages add by entry points: rules, objectives, estimators.

A recipe is not trusted, so it names a part by the name of an entry point and never by an import path. A
package cannot take the name of a built-in part.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, TypeVar

from connectors.foundation.installed import entry_points

RULES = "rowsieve.training_rules"
"""Group of entry points whose names are trainers and whose values are each a :class:`RulePlugin`."""
OBJECTIVES = "rowsieve.training_objectives"
"""Group whose names are objectives and whose values are ``engine.recipe.objectives.ObjectivePlugin``s."""
_log = logging.getLogger("rowsieve")
Plugin = TypeVar("Plugin")


@dataclass(frozen=True)
class RulePlugin:
    """A trainer of one phase, whose rule weighs the rows of every step."""

    params: Any
    """Class of its parameters, derived from :class:`engine.recipe.trainers.StepwiseParams`."""
    make: Any
    """Called as ``make(params, counts)`` with the parameters and the
    :class:`engine.training.data.rows.Counts` of the train rows; returns an
    :class:`engine.training.rules.Rule`."""


def find_plugin(group: str, name: str, kind: type[Plugin]) -> Plugin | None:
    """Return the installed plugin of a name, or None; one that does not load or is no ``kind`` is skipped."""
    for point in entry_points(group=group, name=name):
        try:
            found = point.load()
        except Exception as error:  # a plugin may raise anything
            _log.warning(
                "%s of %s (%s) does not load: %s: %s",
                point.name,
                group,
                point.value,
                type(error).__name__,
                error,
            )
            continue
        if isinstance(found, kind):
            return found
        _log.warning(
            "%s of %s (%s) is not of the class %s; it is skipped",
            point.name,
            group,
            point.value,
            kind.__name__,
        )
    return None


def plugin_names(group: str) -> list[str]:
    """Return the names of the installed plugins of a group, sorted, whether or not they load."""
    return sorted({point.name for point in entry_points(group=group)})
