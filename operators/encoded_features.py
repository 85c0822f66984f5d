"""The features that ``encode`` makes, each with the source column that it comes from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from operators.bounded_json import BadJsonError, read_json

STATE = "encoding.json"
Role: TypeAlias = Literal["value", "category", "missing", "infrequent", "part", "target", "hash", "entry"]


@dataclass(frozen=True)
class Output:
    """One feature that ``encode`` makes of a source column.

    Attributes
    ----------
    source : the source column.
    kind : the column's kind.
    label : the feature in words, such as ``age``, ``age is missing``, ``workclass = Private``, ``hired: month
        (sin)`` or ``image[3]``.
    role : what it says of the column: its ``value``, one ``category``, that it is ``missing`` or
        ``infrequent``, a ``part`` of a date, a ``target`` statistic, a ``hash`` or an ``entry`` of a vector.
    """

    source: str
    kind: str
    label: str
    role: Role

    def to_json(self) -> dict[str, str]:
        """Return the output as JSON-able values."""
        return asdict(self)


def blocks(folder: Path) -> list[int]:
    """Return the lengths of runs of features that are the entries of one vector, and 1 for each other one."""
    found: list[int] = []
    last = ""
    for output in provenance(folder):
        if output.role == "entry" and output.source == last:
            found[-1] += 1
        else:
            found.append(1)
        last = output.source if output.role == "entry" else ""
    return found


def source_positions(folder: Path) -> dict[str, list[int]]:
    """Return source columns in their order, each with the positions of its features in ``x``."""
    found: dict[str, list[int]] = {}
    for position, output in enumerate(provenance(folder)):
        found.setdefault(output.source, []).append(position)
    return found


def provenance(folder: Path) -> list[Output]:
    """Return the outputs of the encoding in a state folder, in the order of the entries of ``x``.

    Raises BadJsonError for a file of another form.
    """
    path = folder / STATE
    state = read_json(path)
    try:
        found = [Output(**output) for output in state["outputs"]]
        forms = {type(text) for output in found for text in vars(output).values()}
    except (KeyError, TypeError) as error:
        raise BadJsonError(path, f"it is not a list of features ({type(error).__name__}: {error})") from error
    if not forms <= {str}:
        raise BadJsonError(path, "it is not a list of features, each with four texts")
    return found
