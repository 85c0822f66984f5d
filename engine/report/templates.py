"""The pages' templates: every value escaped, every missing name an error."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from engine.report.words import count, interval, number, percent, short


def template(name: str) -> Template:
    """A template of this folder."""
    environment = Environment(
        loader=PackageLoader("engine.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    for words in (number, percent, short, interval, count):
        environment.filters[words.__name__] = words
    return environment.get_template(name)
