"""Pretrained networks (``hf:``) as base models: tiny ones, made from a configuration."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import mlflow.pytorch
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from engine.cli.app import app
from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.plan.trained_model_check import check_trained_model
from engine.recipe.pretrained import folder_of
from engine.recipe.recipe import Recipe
from engine.recipe.trainers import TRAINERS, parse_params
from engine.training import TrainSpec, train
from engine.training.data.rows import dataset_of_arrays
from engine.training.data.version import open_version
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.in_memory import fit_arrays
from engine.training.fit.job import training_fingerprint
from engine.training.fit.kernel import fit
from operators.base import Context, OperatorError
from operators.embed.minilm import SentenceEncoder
from operators.embed.network_inputs import TOKENIZER, NetworkInputs, NetworkInputsParams, TokenIds
from operators.models.pretrained import NO_TOKEN, TYPES, PretrainedNetwork, read_pretrained
from tests.unit.communicators import train_together
from tests.unit.engine.training.publishing import publish
from tests.unit.engine.training.tiny_networks import CONFIGS, TEXTS, WORDS, save_network, save_tokenizer

QUICK = {"epochs": 1, "batch_size": 64}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_network("bert", tmp_path_factory.mktemp("bert"))


def texts(
    n: int, seed: int, minority: float = 0.05
) -> tuple[list[str], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Texts, labels and groups: the label is one of two words, which a few others drown; a colour agrees with
    it but in the minority."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    agrees = rng.random(n) >= minority
    colour = np.where(agrees, y, 1 - y)
    lines = []
    for label, hue in zip(y, colour, strict=True):
        words = [*rng.choice(WORDS[4:], 4), WORDS[label], *[WORDS[2 + hue]] * 3]
        lines.append(" ".join(rng.permutation(words)))
    return lines, y, 2 * y + (~agrees)


def ids_of(lines: list[str], width: int = 12) -> np.ndarray[Any, Any]:
    ids = {word: place + 4 for place, word in enumerate(WORDS)}
    found = np.full((len(lines), width), NO_TOKEN, np.float32)
    for row, line in enumerate(lines):
        tokens = [1, *(ids[word] for word in line.split()), 2]
        found[row, : len(tokens)] = tokens
    return found


def pictures(n: int, seed: int, minority: float = 0.05) -> tuple[np.ndarray[Any, Any], ...]:
    """Pixels (n, 3 * 16 * 16), labels and groups: a faint shape tells the label, a bright one mostly."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    agrees = rng.random(n) >= minority
    hue = np.where(agrees, y, 1 - y)
    pixels = rng.normal(110, 40, (n, 3, 16, 16))
    pixels[:, 0, :8] += 15.0 * (2 * y - 1)[:, None, None]
    pixels[:, 2, 8:] += 60.0 * (2 * hue - 1)[:, None, None]
    return pixels.clip(0, 255).reshape(n, -1).astype(np.float32), y, 2 * y + (~agrees)


def worst(
    model: Ensemble, X: np.ndarray[Any, Any], y: np.ndarray[Any, Any], group: np.ndarray[Any, Any]
) -> float:
    right = model.predict(X) == y
    return float(min(right[group == g].mean() for g in np.unique(group)))


@pytest.mark.parametrize("kind", ["bert", pytest.param("vit", marks=pytest.mark.slow)])
def test_group_dro_on_the_last_layer_lifts_the_worst_group(kind: str, tmp_path: Path) -> None:
    folder = save_network(kind, tmp_path / kind)
    if kind == "bert":
        train_rows, test_rows = ((ids_of(t[0]), *t[1:]) for t in (texts(1500, 0), texts(1500, 1, 0.5)))
    else:
        train_rows, test_rows = pictures(1500, 0), pictures(1500, 1, 0.5)
    shared = {
        "model": f"hf:{folder}",
        "model_params": {"column": "unused"},
        "optimizer": "adam",
        "lr": 0.003,
        "epochs": 12,
    }
    found = {}
    for trainer, more in (("erm_plain", {}), ("gdro", {"step_size": 0.1})):
        params = parse_params({"trainer": trainer, **shared, **more})
        X, y, group = train_rows
        found[trainer] = worst(fit_arrays(X, y, params, groups=group, seed=1), *test_rows)
    assert found["gdro"] > found["erm_plain"] + 0.3


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_every_architecture_trains_its_last_layer_alone(kind: str, tmp_path: Path) -> None:
    assert set(CONFIGS) == set(TYPES)
    folder = save_network(kind, tmp_path / kind)
    rng = np.random.default_rng(0)
    side = CONFIGS[kind].get("image_size", 32)
    X = (
        ids_of(texts(60, 0)[0])
        if kind in TEXTS
        else rng.integers(0, 256, (60, 3 * side**2)).astype(np.float32)
    )
    params = parse_params(
        {"trainer": "erm", "model": f"hf:{folder}", "model_params": {"column": "c"}, **QUICK}
    )
    outcome = fit(dataset_of_arrays(X, rng.integers(0, 2, 60)), params)
    before = PretrainedNetwork(read_pretrained(folder, 1), 2)
    before.load_weights(folder)
    changed = {
        name
        for name, value in before.encoder.state_dict().items()
        if not torch.equal(value, outcome.states[0][f"model.model.encoder.{name}"])
    }
    blocks = next(m for m in before.encoder.modules() if isinstance(m, torch.nn.ModuleList))
    prefix = next(n for n, m in before.encoder.named_modules() if m is blocks) + f".{len(blocks) - 1}."
    assert changed
    assert all(name.startswith(prefix) for name in changed)


def test_the_packaged_network_gives_the_vectors_of_the_encoder() -> None:
    folder = folder_of("hf:minilm")
    network = PretrainedNetwork(read_pretrained(folder, 1), 2)
    network.load_weights(folder)
    asked = NetworkInputsParams(column="c", takes="text", vocabulary=30522, max_tokens=32, folder=str(folder))
    encoder = SentenceEncoder(32, torch.device("cpu"))
    short_and_long = ["a good film", "a bad one with a long tail of words that no other has"]
    x = torch.from_numpy(np.stack([TokenIds(folder / TOKENIZER, asked).prepare(t) for t in short_and_long]))
    taken: list[torch.Tensor] = []
    network.head.register_forward_hook(lambda _, inputs, __: taken.append(inputs[0]))
    with torch.no_grad():
        network.eval()(x)
    expected = [encoder.encode(encoder.prepare(text)[None])[0] for text in short_and_long]
    found = torch.nn.functional.normalize(taken[0]).numpy()
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-6)


@pytest.mark.parametrize("layers", [0, 2, "all"])
def test_the_number_of_layers_is_that_asked_for(layers: int | str, bert: Path) -> None:
    network = PretrainedNetwork(read_pretrained(bert, layers), 2)  # type: ignore[arg-type]
    trained = {n for n, p in network.encoder.named_parameters() if p.requires_grad}
    expected = {0: 0, 2: sum("layer." in n for n, _ in network.encoder.named_parameters())}
    assert len(trained) == expected.get(layers, len(list(network.encoder.parameters())))  # type: ignore[call-overload]


def test_frozen_layers_have_no_dropout(bert: Path) -> None:
    network = PretrainedNetwork(read_pretrained(bert, 1), 2).train()
    first, last = network.encoder.encoder.layer
    assert not first.training
    assert not network.encoder.embeddings.training
    assert last.training
    assert not network.eval().encoder.encoder.layer[-1].training


@pytest.mark.parametrize("trainer", sorted(TRAINERS))
def test_every_trainer_accepts_it(trainer: str, bert: Path) -> None:
    lines, y, group = texts(200, 0)
    more: dict[str, Any] = {
        "boosted_cvar": {"rounds": 2, "round_epochs": 1},
        "dfr": {"held_out": 0.5},
        "jtt": {"first_epochs": 1},
    }
    values = {"trainer": trainer, "model": f"hf:{bert}", "model_params": {"column": "c"}, **QUICK}
    params = parse_params(values | more.get(trainer, {}))
    model = fit_arrays(ids_of(lines), y, params, groups=group)
    assert model.predict(ids_of(lines)).shape == y.shape


def test_a_regression_is_fine_tuned(bert: Path) -> None:
    lines, y, _ = texts(200, 0)
    values = {
        "trainer": "erm",
        "objective": "squared",
        "model": f"hf:{bert}",
        "model_params": {"column": "c"},
    }
    model = fit_arrays(ids_of(lines), 3.0 + y, parse_params(values | QUICK))
    assert model.predict_numbers(ids_of(lines)).shape == y.shape


def test_any_number_of_workers_gives_the_same_bytes(bert: Path) -> None:
    lines, y, group = texts(300, 0)
    params = parse_params(
        {"trainer": "gdro", "model": f"hf:{bert}", "model_params": {"column": "c"}, "epochs": 1, "slots": 2}
    )
    data = dataset_of_arrays(ids_of(lines), y, groups=group, n_shards=2)
    alone = fit(data, params).states[0]
    for outcome in train_together(2, lambda member: fit(data, params, communicator=member)):
        assert all(torch.equal(value, alone[name]) for name, value in outcome.states[0].items())


def published_texts(folder: Path) -> Path:
    lines, y, _ = texts(400, 0)
    frame = pd.DataFrame({"a": np.arange(400) % 7, "review": [None, *lines[1:]], "label": y})
    operators = {
        "groups": {"method": "none"},
        "weights": {"method": "uniform"},
        "split": {"validation": 0.3},
    }
    return publish(
        frame,
        folder,
        operators,
        2,
        source={"path": str(folder / "data"), "label": "label", "exclude": ["review"]},
    )


@pytest.mark.slow
def test_a_published_version_is_fine_tuned_and_served(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registered model reads raw texts, and needs neither the network's folder nor the features."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    output = published_texts(tmp_path)
    folder = shutil.copytree(bert, tmp_path / "net")
    values = ["trainer=gdro", f"model=hf:{folder}", "model_params={column: review, max_tokens: 16}"]
    values += ["epochs=2", "batch_size=64"]
    command = ["retrain", "--dataset", str(output), "--executor", "local", "--register", "reviews", "--json"]
    asked = [*command, *(word for value in values for word in ("--set", value))]
    rule = ["--promote-if", "accuracy > champion with confidence 0.95"]
    first = CliRunner().invoke(app, [*asked, *rule])
    assert first.exit_code == 0, first.output
    result = json.loads(first.stdout)
    assert result["importance"]["reason"] == "all features come from one column, review"
    again = CliRunner().invoke(app, [*asked, *rule])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["folder"] == result["folder"]
    shutil.rmtree(folder)
    client = mlflow.MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    source = str(client.get_model_version_by_alias("reviews", "champion").source).removeprefix("file://")
    model = mlflow.pyfunc.load_model(source)
    answers = model.predict(pd.DataFrame({"review": ["good red w1", None, "   ", "bad " * 40]}))
    assert answers["reason"][0] is None
    assert "is null" in answers["reason"][1]
    assert "without a word" in answers["reason"][2]
    assert answers["prediction"].notna().tolist() == [True, False, False, True]
    trained = Ensemble.load(output / "models" / Path(result["folder"]).name)
    assert answers["prediction"][0] == trained.predict(ids_of(["good red w1"], 16))[0]
    graph = mlflow.pytorch.load_model(str(Path(source) / "data" / "rowsieve" / "pytorch"))
    with torch.no_grad():
        shares = graph(torch.from_numpy(ids_of(["good red w1"] * 2, 16)))[0]
    assert shares[1].item() == pytest.approx(float(answers["probability_1"][0]), abs=1e-5)
    record = (Path(source) / "data/rowsieve/serving.json").read_text()
    assert str(folder) not in record


def test_another_network_in_the_same_folder_is_another_training(bert: Path, tmp_path: Path) -> None:
    output = published_texts(tmp_path)
    folder = shutil.copytree(bert, tmp_path / "net")
    params = parse_params({"model": f"hf:{folder}", "model_params": {"column": "review"}, **QUICK})
    before = training_fingerprint(open_version(output), params, 0)
    save_network("bert", folder, intermediate_size=64)
    assert training_fingerprint(open_version(output), params, 0) != before


@pytest.mark.parametrize("column", ["label", "reviews"])
def test_a_column_that_cannot_be_read_is_named(column: str, bert: Path, tmp_path: Path) -> None:
    params = parse_params({"model": f"hf:{bert}", "model_params": {"column": column}, **QUICK})
    with pytest.raises(InputError, match=r"model_params\.column: .*" + column):
        train(TrainSpec(published_texts(tmp_path), params), LocalExecutor())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("image_std", [0.2, 0, 0.2]),
        ("image_std", [0.2, 1e-300, 0.2]),
        ("image_std", [0.2, -0.1, 0.2]),
        ("image_std", [0.2, "x", 0.2]),
        ("image_std", 0.2),
        ("image_mean", [0.2, 1e300, 0.2]),
    ],
)
def test_colours_by_which_no_pixel_can_be_scaled_are_refused(key: str, value: Any, tmp_path: Path) -> None:
    """Divided by zero, all scores would be NaN."""
    folder = save_network("vit", tmp_path)
    (folder / "preprocessor_config.json").write_text(json.dumps({key: value}))
    with pytest.raises(OperatorError, match=rf"preprocessor_config\.json: {key}") as raised:
        read_pretrained(folder, 1)
    assert "\n" not in str(raised.value)


def test_images_are_fine_tuned_from_bytes(tmp_path: Path) -> None:
    folder = save_network("vit", tmp_path / "net")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)

    def png(label: int) -> bytes:
        pixels = rng.integers(0, 100, (20, 24, 3)) + 120 * label
        buffer = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(buffer, "PNG")
        return buffer.getvalue()

    frame = pd.DataFrame({"a": np.arange(200) % 7, "picture": [png(label) for label in y], "label": y})
    operators = {"groups": {"method": "none"}, "weights": {"method": "uniform"}, "split": {"validation": 0.3}}
    source = {"path": str(tmp_path / "data"), "label": "label", "exclude": ["picture"]}
    output = publish(frame, tmp_path, operators, source=source)
    params = parse_params(
        {
            "model": f"hf:{folder}",
            "model_params": {"column": "picture"},
            "optimizer": "adam",
            "epochs": 5,
            "batch_size": 16,
        }
    )
    result = train(TrainSpec(output, params), LocalExecutor())
    accuracy = result.evaluations["validation"].accuracy
    assert accuracy is not None
    assert accuracy > 0.95


def refuse(
    match: str, change: Callable[[dict[str, Any]], None], folder: Path, error: type[Exception] = OperatorError
) -> None:
    path = folder / "config.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(error, match=match):
        read_pretrained(folder, 1)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("model_type", "gpt2", "model_type 'gpt2' is none of bert"),
        ("num_hidden_layers", 10**6, "num_hidden_layers"),
        ("vocab_size", 2**40, "vocab_size"),
        ("hidden_size", 17, "cannot be built"),
        ("hidden_act", {"a": 1}, "hidden_act"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(
    key: str, value: Any, match: str, bert: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(bert, tmp_path / "net")
    refuse(match, lambda record: record.update({key: value}), folder)


def test_stages_have_no_more_layers_than_a_network_may_have(tmp_path: Path) -> None:
    folder = save_network("convnext", tmp_path / "net")
    refuse("depths", lambda record: record.update(depths=[500, 500, 1, 1]), folder)


def test_code_of_a_folder_is_not_run(bert: Path, tmp_path: Path) -> None:
    """Neither code that ``auto_map`` names nor kernels that the attention names are looked for."""
    folder = shutil.copytree(bert, tmp_path / "net")
    record = json.loads((folder / "config.json").read_text())
    record |= {"auto_map": {"AutoModel": "evil.Model"}, "_attn_implementation": "evil/kernels"}
    record |= {"attn_implementation": "evil/kernels"}
    (folder / "config.json").write_text(json.dumps(record))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    spec = read_pretrained(folder, 1)
    assert not {"auto_map", "_attn_implementation", "attn_implementation"} & set(spec.config)
    network = PretrainedNetwork(spec, 2)
    network.load_weights(folder)
    assert not (tmp_path / "ran").exists()


def test_files_that_are_missing_or_do_not_belong_are_named(bert: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert, tmp_path / "net")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(OperatorError, match=r"model\.safetensors: there is no such file; pickled weights"):
        read_pretrained(folder, 1)
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    other = save_network("bert", tmp_path / "other", hidden_size=32)
    shutil.copy(other / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(OperatorError, match=r"model\.safetensors: .*another shape"):
        PretrainedNetwork(read_pretrained(folder, 1), 2).load_weights(folder)
    output = published_texts(tmp_path / "version")
    save_tokenizer(other, more=("beyond",))
    params = parse_params({"model": f"hf:{other}", "model_params": {"column": "review"}, **QUICK})
    with pytest.raises(InputError, match=r"tokenizer\.json: the tokenizer has 29 entries"):
        train(TrainSpec(output, params), LocalExecutor())


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"model": "hf:"}, "names no folder"),
        ({"model": "hf:x"}, "model_params.column: hf:x needs"),
        ({"model": "hf:x", "model_params": {"column": "a", "layer": 1}}, "takes no 'layer'"),
        ({"model": "hf:x", "model_params": {"column": "a", "layers": -1}}, "model_params.layers"),
        ({"model": "hf:x", "model_params": {"column": "a"}, "standardize": True}, "standardize is not read"),
        ({"model": "hf:x", "model_params": {"column": "a"}, "max_mean_loss": 0.1}, "max_mean_loss"),
    ],
)
def test_parameters_are_checked(values: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        parse_params(values)


def test_a_folder_is_read_where_the_policy_allows_local_files(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_section = {"params": {"model": f"hf:{bert}", "model_params": {"column": "a"}}}
    sections = {"source": {"path": "s3://b/x", "label": "y"}, "output": {"path": "s3://b/out"}}
    recipe = Recipe.parse({"name": "n", **sections, "train": train_section})
    check_trained_model(recipe)
    packaged = {"model": "hf:minilm", "model_params": {"column": "a"}}
    search = {"params": packaged, "search": {"space": {"model": ["hf:minilm", f"hf:{bert}"]}}}
    searched = Recipe.parse({"name": "n", **sections, "train": search})
    monkeypatch.setenv("ROWSIEVE_SCHEMES", "s3")
    with pytest.raises(InputError, match=r"train\.params\.model: the scheme 'file' is not allowed"):
        check_trained_model(recipe)
    with pytest.raises(InputError, match=r"search\.space\.model: the scheme 'file' is not allowed"):
        check_trained_model(searched)


def test_a_folder_that_is_not_there_is_named() -> None:
    params = parse_params({"model": "hf:nowhere/at-all", "model_params": {"column": "a"}})
    with pytest.raises(OperatorError, match="there is no folder nowhere/at-all"):
        fit_arrays(np.zeros((4, 2)), [0, 1, 0, 1], params)


class Unread:
    """The reader of an operator that reads no row while it is fitted."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


DOUBLED = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
PATTERN = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
A, B = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
MARK = {"SpecialToken": {"id": "M", "type_id": 0}}


def _template(single: list[dict[str, Any]], n_ids: int) -> dict[str, Any]:
    mark = {"id": "M", "ids": [1] * n_ids, "tokens": ["a"] * n_ids}
    return {"type": "TemplateProcessing", "single": single, "pair": [A, B], "special_tokens": {"M": mark}}


FORGED_TOKENIZERS: dict[str, dict[str, Any]] = {
    "grows": {"normalizer": {"type": "Sequence", "normalizers": [DOUBLED] * 34}},
    "many steps": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"}] * 100_000}},
    "pattern": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}},
    "no step": {"pre_tokenizer": ["Whitespace"]},
    "grows behind a decoy": {
        "normalizer": {"type": "Sequence", "decoy": [], "normalizers": [DOUBLED] * 24},
    },
    "pattern behind a decoy": {
        "pre_tokenizer": {"type": "Sequence", "decoy": [], "pretokenizers": [PATTERN]},
    },
    "unknown key": {"normalizer": {"type": "Lowercase", "normalizers": []}},
    "list of another part": {"normalizer": {"type": "Sequence", "pretokenizers": []}},
    "no list of steps": {"normalizer": {"type": "Sequence", "normalizers": None}},
    "doubles bytes": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 14}},
    "many marks": {"post_processor": _template([A, *[MARK] * 2000], n_ids=2000)},
    "another text": {"post_processor": _template([B], n_ids=1)},
    "long words": {"model": {"type": "WordPiece", "vocab": {}, "max_input_chars_per_word": 10**9}},
}


@pytest.mark.parametrize("forgery", [*FORGED_TOKENIZERS, "pipe", "deep"])
def test_a_forged_tokenizer_is_refused(forgery: str, bert: Path, tmp_path: Path) -> None:
    """Two kilobytes made 16 GB of one letter; a pipe was waited for."""
    path = tmp_path / "tokenizer.json"
    if forgery == "pipe":
        os.mkfifo(path)
    elif forgery == "deep":
        path.write_text("[" * 100_000 + "]" * 100_000)
    else:
        known = json.loads((bert / "tokenizer.json").read_text())
        path.write_text(json.dumps(known | FORGED_TOKENIZERS[forgery]))
    params = NetworkInputsParams(column="t", takes="text", vocabulary=100, folder=str(tmp_path))
    with pytest.raises(OperatorError, match=r"tokenizer\.json: no tokenizer can be read"):
        NetworkInputs(params).fit(Context(Unread(), tmp_path / "state"), LocalExecutor())
    assert not (tmp_path / "state").exists()


def test_a_tokenizer_is_read_without_its_decoder(bert: Path, tmp_path: Path) -> None:
    """Nothing is decoded, and a decoder may have a pattern that the library cannot read."""
    known = json.loads((bert / "tokenizer.json").read_text())
    decoder = {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(known | {"decoder": decoder}))
    params = NetworkInputsParams(column="t", takes="text", vocabulary=100)
    expected = TokenIds(bert / "tokenizer.json", params).prepare("a word")
    np.testing.assert_array_equal(TokenIds(path, params).prepare("a word"), expected)
