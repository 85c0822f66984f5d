"""Frozen dicts and lists refuse every change, and are otherwise a dict and a list."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import TypeAdapter

from connectors.foundation.immutable import FrozenDict, FrozenList, frozen

VALUE = {"a": [1, {"b": {2}}], "c": ("d", [3])}

CHANGES: list[Callable[[Any], Any]] = [
    lambda value: value.__setitem__("a", 1),
    lambda value: value.__delitem__("a"),
    lambda value: value.__ior__({"b": 1}),
    lambda value: value.clear(),
    lambda value: value.pop("a"),
    lambda value: value.popitem(),
    lambda value: value.setdefault("z", 1),
    lambda value: value.update(b=1),
    lambda value: value["a"].__setitem__(0, 1),
    lambda value: value["a"].__delitem__(0),
    lambda value: value["a"].__iadd__([1]),
    lambda value: value["a"].__imul__(2),
    lambda value: value["a"].append(1),
    lambda value: value["a"].clear(),
    lambda value: value["a"].extend([1]),
    lambda value: value["a"].insert(0, 1),
    lambda value: value["a"].pop(),
    lambda value: value["a"].remove(1),
    lambda value: value["a"].reverse(),
    lambda value: value["a"].sort(),
    lambda value: value["a"][1].clear(),
    lambda value: value["c"][1].clear(),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
@pytest.mark.parametrize("copy", [frozen, lambda value: pickle.loads(pickle.dumps(frozen(value)))])
def test_no_change_is_made(copy: Callable[[Any], Any], change: Callable[[Any], Any]) -> None:
    value = copy(VALUE)
    with pytest.raises(TypeError, match="cannot be changed"):
        change(value)
    assert value == VALUE


def test_every_method_that_changes_a_dict_or_a_list_is_refused() -> None:
    for kind, plain in ((FrozenDict, dict), (FrozenList, list)):
        inherited = {name for name in dir(plain) if getattr(kind, name) is getattr(plain, name, None)}
        changing = {
            "append",
            "clear",
            "extend",
            "insert",
            "pop",
            "popitem",
            "remove",
            "reverse",
            "setdefault",
        }
        changing |= {"sort", "update", "__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__"}
        assert not inherited & changing


def test_they_are_written_and_compared_as_a_dict_and_a_list() -> None:
    value = frozen({"a": [1, {"b": 2}]})
    assert value == {"a": [1, {"b": 2}]}
    assert json.dumps(value) == '{"a": [1, {"b": 2}]}'
    dumped = TypeAdapter(Any).dump_python(value)
    assert (type(dumped), type(dumped["a"])) == (dict, list)
    assert type(dict(value)) is dict
    assert frozen(value) is value


def test_the_original_stays_as_it_is() -> None:
    original = {"a": [1]}
    value = frozen(original)
    original["a"].append(2)
    assert value == {"a": [1]}
