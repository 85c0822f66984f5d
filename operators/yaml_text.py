"""Values as they are written in a recipe."""

from __future__ import annotations

from typing import Any

import yaml


class ValueDumper(yaml.SafeDumper):
    """Writes values alone, and repeated ones out instead of as aliases.

    Texts with line ends or control characters are written in double quotes, which escape them: without, YAML
    reads the line end U+0085 as a blank.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out, also one that was written before."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Represent a text as YAML."""
        style = None if data.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


ValueDumper.add_representer(str, ValueDumper.represent_str)


def inline_yaml(value: Any) -> str:
    """Return a value as YAML on one line.

    Characters that are not printable, such as marks of text direction, are written as escapes.

    Examples
    --------
    >>> inline_yaml(["age", "[x], y", "no"])
    "[age, '[x], y', 'no']"
    """
    text = yaml.dump(
        value, Dumper=ValueDumper, default_flow_style=True, allow_unicode=True, width=10**6, sort_keys=False
    )
    line = str(text).removesuffix("\n").removesuffix("\n...")
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in line)


def inline_entry(key: str, value: Any) -> str:
    """Return an entry of a mapping as YAML on one line.

    Examples
    --------
    >>> inline_entry("hired: on", {"format": "%d %b %Y"})
    "'hired: on': {format: '%d %b %Y'}"
    """
    return inline_yaml({key: value})[1:-1]


def _escaped(sign: str) -> str:
    """Return the escape of a character in double quotes, which surround every text that has such a
    character.
    """
    return f"\\u{ord(sign):04x}" if ord(sign) < 2**16 else f"\\U{ord(sign):08x}"
