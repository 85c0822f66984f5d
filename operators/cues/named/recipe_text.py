"""Answers on suspected shortcuts as the text of a recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from operators.cues.params import CueSlice, CueWords
from operators.yaml_text import inline_yaml


def yaml_reference(reference: Any) -> str:
    """Return a reference as the recipe writes it within a list.

    That is YAML's flow style, which JSON is a part of: texts are quoted if they are not words.
    """
    if isinstance(reference, CueSlice | CueWords):
        reference = reference.model_dump(mode="json")
    if isinstance(reference, Mapping) and "words" in reference:
        return (
            f"{{column: {yaml_reference(reference['column'])}, words: {yaml_references(reference['words'])}}}"
        )
    if isinstance(reference, Mapping):
        cut = "" if reference.get("cut") is None else f", cut: {reference['cut']!r}"
        return f"{{column: {yaml_reference(reference['column'])}{cut}}}"
    if isinstance(reference, str):
        return reference if _is_plain(reference) else _quoted(reference)
    return yaml_references(reference)


def yaml_references(references: Sequence[Any]) -> str:
    """Return references as the list that the recipe writes."""
    return f"[{', '.join(yaml_reference(reference) for reference in references)}]"


def _quoted(text: str) -> str:
    """Return a text in quotation marks: as it is where all of it can be read, else with escapes."""
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else inline_yaml(text)


def _is_plain(text: str) -> bool:
    """Return whether YAML reads the bare text as this very text."""
    words = ("y", "n", "yes", "no", "on", "off", "true", "false", "null", "none")
    return text.isascii() and text.isidentifier() and text.lower() not in words
