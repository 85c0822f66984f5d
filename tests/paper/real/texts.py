"""Words planted in public texts, through the sentence encoder and the kernel: does the search find them?

``python -m tests.paper.real.texts`` prints one line for each problem: the words that were found, and worst /
mean accuracy of plain and class-balanced models, of the oracle and of the weights. The texts are those of
``fresh`` and ``fresh_sixth``; encoding them takes some ten minutes of one core.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from operators.class_shares import class_factors
from operators.cues import CueSettings, fit, weights
from operators.cues.named.references import FeatureColumns
from operators.cues.words.fit_words import find_words, fit_with_words
from operators.cues.words.shard_texts import SampledTexts
from operators.encode.word_components import WordComponents
from tests.paper.real.fresh import TWEETS, table
from tests.paper.real.generated import Problem
from tests.paper.real.kernel import score

Array = npt.NDArray[np.floating]
FOLLOWS = 0.92
"""Share of the training rows in which the words go with the label; half of the test rows."""
TRAIN_SHARE = 0.7
FAMILIES = (("Nordwind", "Alvora", "Kestrel"), ("Bramax", "Tollins", "Juno"))
HOW = ("first", "one", "family", "none")
WIDTH = 64
"""Components of words beside the vector of a text, as ``rowsieve init`` sets them."""


def reviews() -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return reviews of food: is the score the best?"""
    frame = table("modeldata", "training_data")
    return frame.review.astype(str).tolist(), pd.factorize(frame.score, sort=True)[0].astype(np.int64)


def tweets() -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return tweets: sent from an iPhone or from Android?"""
    frame = table("dslabs", "trump_tweets")
    frame = frame[frame.source.isin(["Twitter for Android", "Twitter for iPhone"])]
    frame = frame.sample(TWEETS, random_state=11)
    return frame.text.tolist(), (frame.source == "Twitter for iPhone").to_numpy(np.int64)


def planted(text: str, side: int, how: str, rng: np.random.Generator) -> str:
    """Return a text with the word of a side, at its beginning or anywhere."""
    words = text.split()
    place = int(rng.integers(0, len(words) + 1))
    if how == "first":
        return f"{('Amazon.', 'Purchased.')[side]} {text}"
    if how == "one" and side:
        words.insert(place, "verified")
    elif how == "family":
        words.insert(place, FAMILIES[side][rng.integers(3)])
    return " ".join(words)


def run(name: str, how: str, seed: int = 0) -> str:
    """Return the outcome of one problem in words."""
    from tests.paper.data_sets import _embedded

    texts, y = {"reviews": reviews, "tweets": tweets}[name]()
    rng, n = np.random.default_rng(100 + seed), len(y)
    train, test = np.split(rng.permutation(n), [int(TRAIN_SHARE * n)])
    follows = rng.random(n) < np.where(np.isin(np.arange(n), test), 0.5, FOLLOWS)
    hidden = np.where(follows, y, 1 - y) if how != "none" else np.zeros(n, np.int64)
    texts = [planted(text, int(side), how, rng) for text, side in zip(texts, hidden, strict=True)]
    shown = [texts[i] for i in train]
    components = WordComponents.fit(shown, WIDTH, seed)
    X = np.asarray(_embedded(texts), np.float32)
    X = X if components is None else np.hstack([X, components.transform(texts)])
    problem = Problem(X[train], y[train], hidden[train], X[test], y[test], hidden[test], how)
    found, w = weighed(problem, shown, seed)
    group = 2 * problem.y + problem.hidden
    weightings = {
        "erm": np.ones(len(train)),
        "cb": class_factors(np.bincount(problem.y))[problem.y],
        "oracle": (1.0 / np.maximum(np.bincount(group), 1))[group],
        "weights": w,
    }
    scores = {kind: score(problem, given) for kind, given in weightings.items()}
    return f"{name} {how}, {found}: " + ", ".join(
        f"{kind} {worst:.3f} / {mean:.3f}" for kind, (worst, mean) in scores.items()
    )


def weighed(problem: Problem, texts: list[str], seed: int) -> tuple[str, Array]:
    """Return the words that were found and the weights, as the operator does."""
    s, ids = CueSettings(seed=seed), np.arange(len(problem.y))
    columns = FeatureColumns(("x",), (problem.X.shape[1],))
    words = find_words(SampledTexts(ids, {"text": texts}), problem.X, problem.y, ids, columns, s)
    balanced = None
    if words is not None:
        counts = np.bincount(problem.y)
        balanced = fit_with_words(words, problem.X, problem.X, problem.y, ids, s, counts)
    if words is None or balanced is None:
        state = fit(problem.X, problem.y, ids, s)
        return "none found", weights(state, problem.X, problem.y, ids)
    state = replace(balanced[0], scaler=replace(balanced[0].scaler, directions=words.directions))
    named = " and ".join(" or ".join(one.words) for one in words.sets)
    return named, weights(state, problem.X, problem.y, ids)


def main() -> None:
    """Print the outcome of every problem."""
    for name in ("reviews", "tweets"):
        for how in HOW:
            print(run(name, how), flush=True)


if __name__ == "__main__":
    main()
