"""Counts the lines of the packages at revisions, by their kind; ``--by-folder`` for each folder too.

python -m tests.code_size [--by-folder] 2bc8780 HEAD
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter

PACKAGES = ("engine", "operators", "connectors")
KINDS = ("modules", "lines", "code", "docstrings", "blank")


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


def folder_of(name: str) -> str:
    """Return the package and its folder that hold a module, such as ``operators/eos``."""
    return "/".join(name.split("/")[:-1][:2])


def by_folder(revision: str) -> dict[str, Counter[str]]:
    """Return the sizes of the modules at a revision, by their folder."""
    found: dict[str, Counter[str]] = {}
    for name in git("ls-tree", "-r", "--name-only", revision, *PACKAGES).split():
        if name.endswith(".py"):
            found.setdefault(folder_of(name), Counter()).update(sizes(git("show", f"{revision}:{name}")))
    return found


def main() -> None:
    """Print one line for each revision, and a table of the folders' lines if asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.code_size")
    parser.add_argument("--by-folder", action="store_true")
    parser.add_argument("revisions", nargs="*", default=["HEAD"])
    arguments = parser.parse_args()
    found = {revision: by_folder(revision) for revision in arguments.revisions}
    for revision, folders in found.items():
        total = sum(folders.values(), Counter())
        print(revision, ", ".join(f"{total[kind]:,} {kind}" for kind in KINDS))
    if arguments.by_folder:
        print("folder", *found)
        for folder in sorted(set().union(*found.values())):
            print(folder, *(f"{folders.get(folder, Counter())['lines']:,}" for folders in found.values()))


if __name__ == "__main__":
    main()
