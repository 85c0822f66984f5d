"""The HTML templates of this folder."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from operators.counts import count
from operators.report.text import interval, number, percent, short


def template(name: str) -> Template:
    """Load a template: it escapes every value, and a missing name is an error."""
    environment = Environment(
        loader=PackageLoader("engine.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    for formatter in (number, percent, short, interval, count):
        environment.filters[formatter.__name__] = formatter
    return environment.get_template(name)
