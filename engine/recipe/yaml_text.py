"""Reading the YAML text of a recipe safely, changing its values by ``a.b=c`` overrides, and writing it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from connectors.foundation.messages import nearest, shorten
from engine.core.errors import InputError, one_line
from operators.yaml_text import ValueDumper

MAX_BYTES, MAX_NODES = 2**20, 100_000
MAX_DIGITS, LARGEST = 100, 2**63 - 1
"""Characters of a number, since reading one takes the square of its length, and the largest whole number."""
HALF = re.compile("[\ud800-\udfff]")
"""Surrogates, which UTF-16 has in pairs. One without the other is no character."""
MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Reads values alone, no number of more than ``MAX_DIGITS`` characters, and no key twice."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return a mapping as it is written, before any merge key (``<<``) adds to it."""
        found: yaml.MappingNode = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], yaml.ScalarNode] = {}
        for key, _ in found.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            other = first.setdefault((key.tag, key.value), key)
            if other is not key:
                twice = f"the key {shorten(key.value)} is given twice, keep one of them: the first"
                raise yaml.constructor.ConstructorError(twice, other.start_mark, "the second", key.start_mark)
        return found

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        """Return a whole number or a fraction."""
        if len(node.value) > MAX_DIGITS:
            problem = f"a number of more than {MAX_DIGITS} characters"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        whole = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)


def read_yaml(path: Path) -> Any:
    """Load YAML safely. Raises InputError naming the line and column of a fault."""
    try:
        if path.is_dir():
            raise InputError(_folder_message(path))
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # the size of a device or pipe is not known before
        if len(content) > MAX_BYTES:
            raise InputError(
                f"The recipe {path} is larger than {MAX_BYTES >> 20} MiB. Name a recipe, a YAML file."
            )
        return parse_yaml(content.decode("utf-8"), str(path))
    except FileNotFoundError:
        raise InputError(f"The recipe {path} does not exist.{_nearest_path(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"The recipe {path} cannot be read: {error}. It must be a text file in UTF-8."
        ) from None


def _folder_message(path: Path) -> str:
    """Return the error for a folder in place of a recipe, such as the output of one."""
    if (path / "versions").is_dir():
        return (
            f"The recipe {path} is the output folder of a recipe. Name the recipe, a YAML file, whose "
            f"output.path it is; `rowsieve versions {path}` lists what it has published."
        )
    return f"The recipe {path} is a folder. Name the recipe itself, a YAML file."


def parse_yaml(text: str, place: str) -> Any:
    """Return the values of a YAML text, without tags that create objects. Raises InputError naming ``place``.

    The expansion of aliases is limited, since a few lines of them can expand to more than fits into memory
    ("billion laughs"), or refer to themselves.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _expanded(node, {}) > MAX_NODES:
            raise InputError(f"{place}: its aliases expand to more than {MAX_NODES} values. Write them out.")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise InputError(f"{place} is not valid YAML: {_yaml_fault(error)}") from None
    except RecursionError:
        raise InputError(f"{place} is nested too deeply, or an alias contains itself. Correct it.") from None
    except (ValueError, OverflowError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{place} holds a value that YAML cannot read: {error}") from None


def write_yaml(value: Any, place: str, *, sort_keys: bool = False) -> str:
    """Return YAML from which :func:`parse_yaml` makes an equal value, with the types of keys and values.

    JSON would not do: it has no infinite numbers, dates and bytes, and all of its keys are texts. Raises
    InputError, which names ``place``, for a value that only Python code can give, such as a Decimal.
    """
    try:
        return yaml.dump(value, Dumper=ValueDumper, sort_keys=sort_keys, allow_unicode=True)
    except yaml.representer.RepresenterError as error:
        found = error.args[-1]
        raise InputError(
            f"{place}: {shorten(str(found))} is of the type {type(found).__name__}, which a recipe in YAML "
            f"cannot hold. Give a text, a number, a boolean, a date or time stamp, bytes, or null."
        ) from None


def check_values(value: Any, place: str) -> None:
    """Raise InputError, which names the key, for a whole number beyond 64 bits or half of a character."""
    waiting = [("", value)]
    while waiting:
        key, entry = waiting.pop()
        _check_value(entry, place, key)
        if isinstance(entry, dict):
            for name, part in entry.items():
                _check_value(name, place, f"{key}: a key" if key else "a key")
                waiting.append((f"{key}.{name}" if key else str(name), part))
        elif isinstance(entry, list | tuple):
            waiting += [(key, part) for part in entry]


def _check_value(value: Any, place: str, key: str) -> None:
    half = HALF.search(value) if isinstance(value, str) else None
    if half is not None:
        where = f"{place}: {key}" if key else place
        raise InputError(
            f"{where}: a text holds U+{ord(half[0]):04X}, half of a character, which UTF-8 cannot hold. "
            "Write the text again; rename a file whose name is not in UTF-8."
        )
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        where = f"{place}: {key}" if key else place
        raise InputError(
            f"{where}: a whole number of {value.bit_length()} bits. Numbers of a recipe have at most 63 "
            f"bits: they lie between -{LARGEST} and {LARGEST}."
        )


def _yaml_fault(error: yaml.YAMLError) -> str:
    """Return the fault and its place, without the line itself, which may hold a password."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return one_line(error)
    places = ((error.context, error.context_mark), (error.problem, error.problem_mark))
    parts = [
        f"{text}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(text)
        for text, mark in places
        if text
    ]
    return "; ".join(parts)


def _expanded(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values of a node with all aliases expanded. Raises RecursionError for a cycle."""
    if id(node) in known:
        if known[id(node)] == 0:
            raise RecursionError
        return known[id(node)]
    known[id(node)] = 0
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    known[id(node)] = 1 + sum(_expanded(child, known) for child in children)
    return known[id(node)]


def _nearest_path(path: Path) -> str:
    """Return a hint for the first part of a path that does not exist."""
    existing = next(folder for folder in path.parents if folder.is_dir())
    missing = path.relative_to(existing).parts[0]
    return nearest(str(existing / missing), [str(entry) for entry in existing.iterdir()])


def apply_override(value: Any, override: str) -> None:
    """Apply ``a.b.c=value`` (the value is YAML) in place. Raises InputError."""
    key, equals, text = override.partition("=")
    names = key.strip().split(".")
    if not equals or not all(names):
        raise InputError(f"--set {override}: write it as section.key=value, for example source.label=target.")
    parsed = parse_yaml(text, f"--set {override}: the value")
    place = value
    for name in names[:-1]:
        if not isinstance(place, dict):
            raise InputError(f"--set {override}: {name!r} lies inside a value that has no keys.")
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
    if not isinstance(place, dict):
        raise InputError(f"--set {override}: {names[-1]!r} lies inside a value that has no keys.")
    place[names[-1]] = parsed
