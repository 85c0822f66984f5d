"""The text format of LightGBM's models, read and written by ourselves.

LightGBM's own reader trusts the indices, lengths and offsets in a model. A stored model may be forged, so
it is read here line by line, every value is checked, and LightGBM gets a text that is written from the
checked values. It holds what prediction needs: trees of numeric splits, and the objective: binary,
multiclass, or squared error. The trees of a quantile are added up in the same way, so that they are stored
as those of the squared error. LightGBM's list of its parameters, which names files and hosts, is not kept.

The format: https://lightgbm.readthedocs.io/en/stable/ (``Booster.model_to_string``), its version v4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from engine.training.libraries.base import damaged
from engine.training.libraries.tree_checks import check_tree

MAX_BYTES = 256 * 2**20
MAX_TREES = 1_000_000
MAX_DIGITS = 9
"""Digits of an integer; larger ones overflow LightGBM's."""
CATEGORICAL = 1
"""Bit of ``decision_type``; the others say where missing values go."""
LARGEST_DECISION = 10
END = "end of trees"
QUANTILE = re.compile(r"quantile( alpha:[0-9.e-]{1,32})?")
_INNER_INTEGERS = ("split_feature", "decision_type", "left_child", "right_child", "internal_count")
_INNER_FLOATS = ("split_gain", "threshold", "internal_value", "internal_weight")
_LEAF_FLOATS = ("leaf_value", "leaf_weight")
_ORDER = (
    "num_leaves",
    "num_cat",
    "split_feature",
    "split_gain",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "leaf_value",
    "leaf_weight",
    "leaf_count",
    "internal_value",
    "internal_weight",
    "internal_count",
    "is_linear",
    "shrinkage",
)


@dataclass(frozen=True)
class _Lines:
    """``key=value`` lines up to an empty one."""

    values: Mapping[str, str]
    place: str

    def text(self, key: str) -> str:
        if key not in self.values:
            raise ValueError(f"{self.place} has no {key}")
        return self.values[key]

    def integers(self, key: str, n: int) -> list[int]:
        """Return n integers. Raises ValueError."""
        return [_integer(part, key) for part in self._parts(key, n)]

    def floats(self, key: str, n: int) -> list[float]:
        """Return n finite numbers. Raises ValueError."""
        found = [float(part) for part in self._parts(key, n)]
        if not all(map(math.isfinite, found)):
            raise ValueError(f"{self.place}: {key} holds a number that is not finite")
        return found

    def _parts(self, key: str, n: int) -> list[str]:
        parts = self.text(key).split()
        if len(parts) != n:
            raise ValueError(f"{self.place}: {key} has {len(parts):,} values, not {n:,}")
        return parts


def canonical(data: bytes, n_features: int, n_classes: int) -> bytes:
    """Return the model in ``data`` as text that is written from checked values.

    The result is the same where ``data`` is a result already.

    Raises
    ------
    OperatorError
        It is not a model of LightGBM for rows of ``n_features`` numbers and ``n_classes`` classes.
    """
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB; fit fewer trees or leaves")
        blocks = _blocks(data.decode("ascii"))
        ranges = _check_head(next(blocks), n_features, n_classes)
        trees = [_tree(block, n_features) for block in blocks]
        per_round = n_classes if n_classes > 2 else 1
        if not trees or len(trees) % per_round:
            raise ValueError(f"{len(trees):,} trees do not make whole rounds for {n_classes:,} classes")
    except (ValueError, OverflowError, StopIteration) as error:
        raise damaged(f"LightGBM's text: {error or 'it is empty'}") from None
    texts = [f"Tree={index}\n{tree}\n\n\n" for index, tree in enumerate(trees)]
    head = [
        "tree",
        "version=v4",
        f"num_class={per_round}",
        f"num_tree_per_iteration={per_round}",
        "label_index=0",
        f"max_feature_idx={n_features - 1}",
        f"objective={_objective(n_classes)}",
        f"feature_names={' '.join(f'Column_{index}' for index in range(n_features))}",
        f"feature_infos={' '.join(ranges)}",
        f"tree_sizes={' '.join(str(len(text)) for text in texts)}",
    ]
    return ("\n".join(head) + "\n\n" + "".join(texts) + END + "\n").encode()


def _blocks(text: str) -> Iterator[_Lines]:
    """Yield the head and every tree; text after ``end of trees`` is ignored."""
    body, end, _ = text.partition(f"\n{END}")
    if not end:
        raise ValueError("it has no end")
    found = re.split(r"\n\n+", body.strip("\n"))
    if len(found) > MAX_TREES:
        raise ValueError(f"it has more than {MAX_TREES:,} trees")
    for index, block in enumerate(found):
        lines = block.split("\n")
        place = f"tree {index - 1:,}" if index else "the head"
        if lines[0] != ("tree" if not index else f"Tree={index - 1}"):
            raise ValueError(f"{place} does not begin as one")
        pairs = [line.partition("=") for line in lines[1:]]
        values = {key: value for key, _, value in pairs}
        if len(values) < len(pairs):
            raise ValueError(f"{place} has a key twice")
        yield _Lines(values, place)


def _check_head(head: _Lines, n_features: int, n_classes: int) -> list[str]:
    """Check that the model belongs to such rows; return the range of each feature, as text."""
    per_round = n_classes if n_classes > 2 else 1
    wanted = {
        "version": "v4",
        "num_class": str(per_round),
        "num_tree_per_iteration": str(per_round),
        "label_index": "0",
        "max_feature_idx": str(n_features - 1),
        "objective": _objective(n_classes),
    }
    for key, value in wanted.items():
        as_quantile = key == "objective" and n_classes == 1 and QUANTILE.fullmatch(head.text(key))
        if head.text(key) != value and not as_quantile:
            raise ValueError(f"{key} is not {value}, that of {n_features:,} features, {n_classes:,} classes")
    ranges = head.text("feature_infos").split()
    if len(ranges) != n_features:
        raise ValueError(f"feature_infos has {len(ranges):,} values, not {n_features:,}")
    return [_range(text) for text in ranges]


def _range(text: str) -> str:
    """Return ``none`` or ``[smallest:largest]``, written from the parsed values."""
    if text == "none":
        return text
    ends = [float(end) for end in text.removeprefix("[").removesuffix("]").split(":")]
    if len(ends) != 2 or not all(map(math.isfinite, ends)):
        raise ValueError("feature_infos holds a value that is not a range")
    return f"[{_shown(ends[0])}:{_shown(ends[1])}]"


def _objective(n_classes: int) -> str:
    if n_classes == 1:
        return "regression"
    return "binary sigmoid:1" if n_classes == 2 else f"multiclass num_class:{n_classes}"


def _tree(tree: _Lines, n_features: int) -> str:
    """Return the lines of a tree of checked values."""
    (n,) = tree.integers("num_leaves", 1)
    if n < 1 or tree.text("num_cat") != "0" or tree.text("is_linear") != "0":
        raise ValueError(f"{tree.place} has no leaf, splits by categories, or has linear leaves")
    made: dict[str, list[int] | list[float]] = {"num_leaves": [n], "num_cat": [0], "is_linear": [0]}
    made |= {key: tree.integers(key, n - 1) for key in _INNER_INTEGERS}
    made |= {key: tree.floats(key, n - 1) for key in _INNER_FLOATS}
    # A tree of one leaf has no weight of it.
    made |= {key: tree.floats(key, n if n > 1 or key == "leaf_value" else 0) for key in _LEAF_FLOATS}
    made["leaf_count"] = tree.integers("leaf_count", n)
    made["shrinkage"] = tree.floats("shrinkage", 1)
    decisions = made["decision_type"]
    if any(not 0 <= one <= LARGEST_DECISION or int(one) & CATEGORICAL for one in decisions):
        raise ValueError(f"{tree.place}: decision_type holds a value that is not a comparison of numbers")
    if n > 1:
        _check_children(tree.place, made, n, n_features)
    return "\n".join(f"{key}={' '.join(map(_shown, made[key]))}" for key in _ORDER)


def _check_children(place: str, made: Mapping[str, list[int] | list[float]], n: int, n_features: int) -> None:
    """Raise ValueError unless the n leaves, which are written as -1, -2, ..., make one tree."""
    left, right, feature = (
        np.array(made[key], np.int64) for key in ("left_child", "right_child", "split_feature")
    )
    none = np.full(n, -1)
    sides = [
        np.concatenate([np.where(side < 0, n - 2 - side, side), none])  # leaf -1 becomes node n - 1
        for side in (left, right)
    ]
    try:
        check_tree(sides[0], sides[1], np.concatenate([feature, none]), n_features)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _integer(text: str, key: str) -> int:
    if not re.fullmatch(rf"-?\d{{1,{MAX_DIGITS}}}", text):
        raise ValueError(f"{key} holds a value that is not an index")
    return int(text)


def _shown(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.17g}"
