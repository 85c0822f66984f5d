"""Counts the lines of ``engine``, ``operators`` and ``connectors`` at revisions, by their kind.

python -m tests.code_size 2bc8780 HEAD
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter

PACKAGES = ("engine", "operators", "connectors")


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def sizes(text: str) -> Counter[str]:
    """Return the number of lines of a module by kind; a docstring's blank lines belong to it."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documented |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = Counter(modules=1)
    for number, line in enumerate(text.splitlines(), 1):
        found["lines"] += 1
        found["docstrings" if number in documented else "code" if line.strip() else "blank"] += 1
    return found


def total(revision: str) -> Counter[str]:
    """Return the sizes of all modules at a revision."""
    names = git("ls-tree", "-r", "--name-only", revision, *PACKAGES).split()
    return sum(
        (sizes(git("show", f"{revision}:{name}")) for name in names if name.endswith(".py")), Counter()
    )


def main(revisions: list[str]) -> None:
    """Print one line for each revision."""
    for revision in revisions or ["HEAD"]:
        found = total(revision)
        print(
            revision,
            ", ".join(
                f"{found[kind]:,} {kind}" for kind in ("modules", "lines", "code", "docstrings", "blank")
            ),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
