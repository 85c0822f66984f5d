"""A link that is put into a state or a model of a shared output gives away no file of the next user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.publish.own_artifacts import upload_file, upload_folder
from engine.runs.runner import run
from engine.storage.withdrawals import current_version
from engine.training import training_run
from engine.training.data.features import FeatureMaker
from engine.training.data.version import open_version
from operators.base import OperatorError, copy_state
from tests.data import small_recipe, spurious_table, write_shards


def to_file(place: Path, secret: Path) -> None:
    place.symlink_to(secret)


def to_folder(place: Path, secret: Path) -> None:
    place.symlink_to(secret.parent)


def pipe(place: Path, secret: Path) -> None:
    os.mkfifo(place)  # opening it would wait for ever


FORGERIES = [to_file, to_folder, pipe]
Forge = Callable[[Path, Path], None]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the next user, elsewhere."""
    file = tmp_path / "home" / "id_rsa"
    file.parent.mkdir()
    file.write_text("precious")
    return file


def copies(folder: Path) -> list[Path]:
    """The files below a folder that hold the secret, without the links to it."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and b"precious" in path.read_bytes()
    ]


@pytest.mark.parametrize("inner", ["", "inner"])
@pytest.mark.parametrize("forge", FORGERIES)
def test_a_copied_state_holds_its_own_files_alone(
    forge: Forge, inner: str, secret: Path, tmp_path: Path
) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    (state / "inner").mkdir(parents=True)
    (state / "inner" / "a.json").write_text("{}")
    (state / "labels-1.parquet").write_text("")
    copy_state(state, copy, ("labels-*",))
    assert [path.relative_to(copy).as_posix() for path in sorted(copy.rglob("*"))] == [
        "inner",
        "inner/a.json",
    ]
    forge(state / inner / "notes.txt", secret)
    with pytest.raises(OperatorError, match=r"notes\.txt is a link or no regular file.*Remove it"):
        copy_state(state, copy)
    assert copies(copy) == []


@pytest.mark.parametrize("again", [False, True])
def test_a_second_copy_leaves_a_state_that_shares_its_files_as_it_is(again: bool, tmp_path: Path) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    state.mkdir()
    (state / "a.json").write_text("{}")
    copy_state(state, copy, link=True)
    copy_state(state, copy, link=again)
    assert (state / "a.json").read_text() == (copy / "a.json").read_text() == "{}"


def test_a_link_in_place_of_a_state_is_not_copied(secret: Path, tmp_path: Path) -> None:
    (tmp_path / "state").symlink_to(secret.parent)
    with pytest.raises(OperatorError, match="state is a link"):
        copy_state(tmp_path / "state", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an output whose operator ``encode`` makes the features."""
    folder = tmp_path_factory.mktemp("published")
    run(small_recipe(folder, shards=2))
    return folder


def encoding(output: Path) -> Path:
    version = open_version(str(output))
    entries = {entry["name"]: entry["fingerprint"] for entry in version.manifest["operators"]}
    return output / "store" / entries["encode"] / "state"


def test_a_training_copies_no_file_that_a_state_links_to(
    published: Path, secret: Path, tmp_path: Path
) -> None:
    """Its copy of the state lies in the shared output again."""
    output = published / "out"
    link = encoding(output) / "notes.txt"
    link.symlink_to(secret)
    maker = FeatureMaker(open_version(str(output)).reader(), tmp_path / "features")
    try:
        with pytest.raises(InputError, match=r"notes\.txt is a link that leads out of its state.*Remove it"):
            maker.fit(LocalExecutor())
    finally:
        link.unlink()
    maker.fit(LocalExecutor())
    assert copies(tmp_path / "features") == []


def test_an_increment_copies_no_file_that_a_state_links_to(secret: Path, tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, shards=2)
    run(recipe)
    link = encoding(tmp_path / "out") / "notes.txt"
    link.symlink_to(secret)
    write_shards(tmp_path / "data" / "more", spurious_table(60, seed=1), 1)
    base = {"base": current_version(tmp_path / "out"), "mode": "predict"}
    later = type(recipe).parse({**recipe.model_dump(mode="json", exclude_unset=True), "incremental": base})
    with pytest.raises(InputError, match=r"notes\.txt is a link that leads out of its state.*Remove it"):
        run(later)
    assert copies(tmp_path / "out") == []


@pytest.mark.parametrize("place", ["plots/x.png", "plots/validation", "features/notes.txt", "report.html"])
@pytest.mark.parametrize("forge", FORGERIES)
def test_a_model_with_a_link_is_not_trained_nor_registered(
    forge: Forge, place: str, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "out" / "models" / "0123456789ab"
    (model / place).parent.mkdir(parents=True)
    forge(model / place, secret)
    version = SimpleNamespace(output=tmp_path / "out", name="v1")
    monkeypatch.setattr(training_run, "open_version", lambda _: version)
    monkeypatch.setattr(training_run, "_check_mix", lambda _: None)
    monkeypatch.setattr(training_run, "training_fingerprint", lambda *_: model.name)
    params = SimpleNamespace(task="classification", target=None, is_pretrained=False)
    spec: Any = SimpleNamespace(dataset="d", folder=None, params=params, seed=0, truth=None)
    with pytest.raises(InputError, match=rf"{place} is a link or no regular file.*Remove it"):
        training_run.train(spec, cast(Any, None))
    assert [path.name for path in secret.parent.iterdir()] == ["id_rsa"]


@pytest.mark.parametrize("forge", FORGERIES)
def test_what_is_uploaded_is_read_without_links(forge: Forge, secret: Path, tmp_path: Path) -> None:
    """Also where the link was put there after the training had begun."""
    sent: list[str] = []

    def log_artifact(run_id: str, file: str, path: str | None = None) -> None:
        sent.append(Path(file).read_text())

    def log_artifacts(run_id: str, folder: str, path: str) -> None:
        sent.extend(file.read_text() for file in Path(folder).rglob("*") if file.is_file())

    client: Any = SimpleNamespace(log_artifact=log_artifact, log_artifacts=log_artifacts)
    folder = tmp_path / "out" / "plots"
    folder.mkdir(parents=True)
    (folder / "a.png").write_text("picture")
    upload_folder(client, "r", folder, "plots")
    upload_file(client, "r", folder / "a.png", root=tmp_path / "out")
    assert sent == ["picture", "picture"]
    forge(folder / "x.png", secret)
    with pytest.raises(InputError, match=r"x\.png is"):
        upload_folder(client, "r", folder, "plots")
    with pytest.raises(InputError, match=r"x\.png is"):
        upload_file(client, "r", folder / "x.png", root=tmp_path / "out")
    assert "precious" not in sent
