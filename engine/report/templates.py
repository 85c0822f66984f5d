"""The HTML templates of this folder."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from operators.counts import count
from operators.report.text import interval, number, percent, short


@cache
def template(name: str) -> Template:
    """Load a template: it escapes every value, and a missing name is an error."""
    environment = Environment(
        loader=PackageLoader("engine.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    for formatter in (number, percent, short, interval, count, with_code):
        environment.filters[formatter.__name__] = formatter
    return environment.get_template(name)


def with_code(text: str) -> Markup:
    """Return escaped text in which what stands between backticks is code.

    Examples
    --------
    >>> print(with_code("name `age <= 3` there"))
    name <code>age &lt;= 3</code> there
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 (it is escaped)
