"""Dicts and lists that cannot be changed, for values that a plan holds.

They are a dict and a list, so that JSON, YAML models and comparisons treat them as these, and they stay
immutable when they are pickled for a worker. The proxies of the standard library cannot be pickled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(
        f"this {type(self).__name__} belongs to a recipe or a plan, which cannot be changed. Copy it by "
        "dict() or list(), and change the copy."
    )


class FrozenDict(dict[K, V]):
    """A dict that raises TypeError where it would be changed."""

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), (dict(self),)


class FrozenList(list[V]):
    """A list that raises TypeError where it would be changed."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), (list(self),)


def frozen(value: Any) -> Any:
    """Return a value whose dicts, lists and sets, at any depth within each other, cannot be changed."""
    if isinstance(value, FrozenDict | FrozenList):
        return value
    if isinstance(value, dict):
        return FrozenDict({key: frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return FrozenList(map(frozen, value))
    if isinstance(value, set):
        return frozenset(value)
    if type(value) is tuple:
        return tuple(map(frozen, value))
    return value


def freeze_fields(fields: dict[str, Any]) -> None:
    """Replace each value of an object's ``__dict__`` by one that cannot be changed."""
    for name, value in fields.items():
        fields[name] = frozen(value)
