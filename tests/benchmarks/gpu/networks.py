"""Pretrained networks: rows a second on the CPU and on the GPU, and how alike the vectors are."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
import torch
from PIL import Image

from operators.embed.efficientnet import image_encoder
from operators.embed.kernel import embed_rows
from operators.embed.minilm import sentence_encoder
from operators.embed.params import EmbedParams
from operators.models import device_for
from tests.benchmarks.harness import measure

TEXTS, IMAGES = 4000, 2000
LEAST_COSINE = {"float32": 0.9999, "bfloat16": 0.999}
SENTENCE = "the delivery was late and nobody answered my letter about a broken lamp in blue paper"


def check(device: str, rows: int | None) -> bool:
    """Print a line for each network and precision; return whether the vectors agree."""
    print(f"\n{'network':<34} {'CPU rows/s':>12} {'GPU rows/s':>12} {'ratio':>8} {'cosine':>10}")
    rng = np.random.default_rng(0)
    texts = [
        " ".join(rng.choice(SENTENCE.split(), rng.integers(1, 120))) for _ in range(min(rows or TEXTS, TEXTS))
    ]
    files = [_png(rng) for _ in range(min(rows or IMAGES, IMAGES))]
    found = []
    for size in (32, 256):
        for precision in ("float32", "bfloat16"):
            params = EmbedParams(model="minilm", column="text", precision=precision, batch_size=size)
            name = f"MiniLM, {precision}, batches of {size}"
            found.append(_network(name, sentence_encoder, params, texts, device))
        shape = {"image_size": 96, "batch_size": size, "precision": "float32"}
        params = EmbedParams(model="efficientnet_lite0", column="image", **shape)
        found.append(
            _network(f"EfficientNet, 96 px, batches of {size}", image_encoder, params, files, device)
        )
    return all(found)


def _network(name: str, make: Any, params: EmbedParams, values: list[Any], device: str) -> bool:
    """On few of the values on the CPU, which takes long."""
    few = values[: max(1, len(values) // 20)]
    cpu, there = make(params, device_for(0)), make(params, _place(device))
    embed_rows(there, values[:64], batch_size=params.batch_size)
    runs = {
        "cpu": lambda: embed_rows(cpu, few, batch_size=params.batch_size)[0],
        "there": lambda: embed_rows(there, values, batch_size=params.batch_size)[0],
        "prepared": lambda: there.prepare_all(values),
    }
    found = measure(runs, {"cpu": 1, "there": 2}, clock=time.perf_counter)
    a, b = found["cpu"].result, found["there"].result[: len(few)]
    cosine = float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())
    rates = [len(few) / found["cpu"].low, len(values) / found["there"].low]
    part = found["prepared"].low / found["there"].low
    print(
        f"{name:<34} {rates[0]:>12,.0f} {rates[1]:>12,.0f} {rates[1] / rates[0]:>7.1f}x {cosine:>10.6f}"
        f"  {part:.0%} of it preparation"
    )
    return cosine > LEAST_COSINE[params.precision]


def _place(device: str) -> torch.device:
    """Return the device of a name such as ``cuda:0``; a GPU computes as exactly as in a run."""
    device_for(float(device.startswith("cuda")))
    return torch.device(device)


def _png(rng: np.random.Generator) -> bytes:
    target = io.BytesIO()
    pixels = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(target, "PNG")
    return target.getvalue()
