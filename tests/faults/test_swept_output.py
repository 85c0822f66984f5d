"""Every file of an output in turn is replaced by hostile content, and commands run on it within limits.

A command ends within a minute of CPU time and four gigabytes, with an exit code that is not 1, and unpickles
nothing. There are two outputs: one of many operators, and one with all that stands beside the run store:
report, export, trained and registered models, records on MLflow, a withdrawn version. ``sweep.py`` runs as
many cases as there is time for.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from tests.data import recipe_for, spurious_table, write_shards

SECONDS, WAITING, BYTES = 60, 600, 4 * 2**30
"""CPU time of a command, its wall time on a machine that does other things too, and its memory."""
MODULES = "\0imported: "
"""Between what a child prints and the modules that it has imported."""
SAMPLED, SAMPLED_TRAINED = 10, 6
"""Cases of each output that every run of the tests tries; the slow test tries all."""
COMMANDS = (
    ["status", "{recipe}"],
    ["run", "{recipe}"],
    ["explain", "{out}", "3"],
    ["plan", "{recipe}"],
    ["groups", "{out}"],
    ["cues", "{out}"],
    ["lineage", "{out}"],
    ["quarantine", "{recipe}"],
    ["versions", "{out}"],
    ["export", "{out}", "--to", "parquet:{folder}/export", "--executor", "local"],
    ["versions", "{out}", "prune", "--keep", "1"],
    ["retract", "{out}@{version}", "--why", "a test"],
    ["lineage", "--sync", "--output", "{out}"],
    ["diff", "{version}", "{version}", "--output", "{out}"],
    ["retrain", "--dataset", "{out}", "--executor", "local", "--set", "epochs=1"],
)
TRAINED = (
    ["run", "{recipe}"],
    ["retrain", "--dataset", "{out}", "--executor", "local", "--set", "epochs=1", "--register", "m"],
    ["lineage", "{out}"],
    ["versions", "{out}"],
    ["export", "{out}", "--to", "hf:{folder}/export", "--executor", "local"],
    ["retract", "{out}@{version}", "--why", "a test"],
    ["status", "{recipe}"],
    ["lineage", "--sync", "--output", "{out}"],
    ["versions", "{out}", "prune", "--keep", "1"],
    [
        "predict",
        "models:/m/1",
        "{folder}/data",
        "{folder}/scores",
        "--tracking",
        "{out}",
        "--executor",
        "local",
    ],
)


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, trace: str) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str, str]]:
        return _leave_trace, (self.trace, "w")


def _leave_trace(path: str, mode: str) -> None:
    with open(path, mode) as file:
        file.write("unpickled")


def replaced(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_gigabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**30)  # takes no room on the disk


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


FORGERIES: dict[str, Callable[[Path], None]] = {
    "device": a_device,
    "pipe": a_pipe,
    "folder": a_folder,
    "empty": replaced(b""),
    "deep": replaced(b"[" * 200_000 + b"]" * 200_000),
    "gigabyte": a_gigabyte,
    "list": replaced(b"[]"),
    "object": replaced(b"{}"),
    "controls": replaced(b'{"\\u001b[31m": "\\u001b]0;x\\u0007"}'),
    "half": half,
}


@dataclass(frozen=True)
class Swept:
    """A folder with data, a recipe and an output, ``out``, of which ``whole`` is a copy."""

    folder: Path
    commands: Sequence[list[str]]
    each: int
    """Commands that are tried on a forgery of a file; the next forgery gets the next ones."""

    def files(self) -> list[Path]:
        """Return one file of each kind, relative to the output: its digits do not count."""
        kinds: dict[str, Path] = {}
        for path in sorted((self.folder / "whole").rglob("*")):
            relative = path.relative_to(self.folder / "whole")
            if path.is_file() and self._counts(relative):
                kinds.setdefault(self._kind(relative), relative)
        return list(kinds.values())

    def _counts(self, relative: Path) -> bool:
        """Leave out what the other output has too, copies of the code, and pictures, which nothing reads."""
        if self.commands is COMMANDS:
            return True
        left_out = relative.parts[0] in ("store", "identities.json") or "code" in relative.parts
        return not left_out and relative.suffix != ".png"

    def _kind(self, relative: Path) -> str:
        if relative.parts[0] != "store":
            return re.sub(r"[0-9a-f]{12,}", "", str(relative))
        state = self.folder / "whole" / "store" / relative.parts[1] / "state"
        owner = ",".join(sorted(entry.name for entry in state.iterdir())) if state.is_dir() else ""
        return owner + re.sub(r"\d+", "", "/".join(relative.parts[2:]))

    def cases(self, forgeries: Iterable[str]) -> Iterator[tuple[Path, str, list[str]]]:
        """Yield every file, forgery and command; the commands of a file take turns with its forgeries."""
        turn, files = 0, self.files()
        for forgery in forgeries:
            for file in files:
                for step in range(self.each):
                    yield file, forgery, self.commands[(turn + step) % len(self.commands)]
                turn += self.each if self.each < len(self.commands) else 1


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return make_published(tmp_path_factory.mktemp("swept"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return make_trained(tmp_path_factory.mktemp("trained"))


def make_published(folder: Path) -> Swept:
    """Return an output with one version of many operators."""
    write_shards(folder / "data", spurious_table(), 1)
    operators = {
        "probe": {"trainer": "in_process", "epochs": 20},
        "cues": {},
        "gradients": {},
        "groups": {"min_samples": [5]},
        "eos": {},
        "outliers": {},
        "neighbours": {"n_neighbors": 3},
        "weights": {},
        "split": {},
    }
    record = recipe_for(folder / "data", folder / "out", operators=operators)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(record))
    assert CliRunner().invoke(app, ["run", str(folder / "recipe.yaml")]).exit_code == 0
    shutil.copytree(folder / "out", folder / "whole")
    return Swept(folder, COMMANDS, len(COMMANDS))


def make_trained(folder: Path) -> Swept:
    """Return an output with reports, exports, models, MLflow's records, withdrawn and standing versions."""
    write_shards(folder / "data", spurious_table(), 1)
    record = recipe_for(
        folder / "data",
        folder / "out",
        output={"export": [{"format": "parquet", "path": str(folder / "table"), "mode": "append"}]},
        train={"trainer": "gdro", "params": {"epochs": 1}, "register_as": "m"},
        report={"enabled": True},
        tracking={"enabled": True},
    )
    for seed in (3, 4):
        (folder / "recipe.yaml").write_text(yaml.safe_dump(record | {"seed": seed}))
        # In a child: MLflow keeps connections to the database, which stands anew for every case.
        code, shown = limited(["run", str(folder / "recipe.yaml")])
        assert code == 0, shown
        if seed == 3:
            version = (folder / "out" / "CURRENT").read_text().split()[0]
            code, shown = limited(["retract", f"{folder / 'out'}@{version}", "--why", "a test"])
            assert code == 0, shown
    shutil.copytree(folder / "out", folder / "whole")
    shutil.copytree(folder / "table", folder / "whole-table")
    return Swept(folder, TRAINED, 3)


def tried(swept: Swept, file: Path, forgery: str, words: list[str]) -> str:
    """Run a command on a copy of the output with one forged file; return what is wrong, or nothing."""
    folder, out = swept.folder, swept.folder / "out"
    before = {"data", "whole", "whole-table", "recipe.yaml"}
    for path in folder.iterdir():
        if path.name not in before:
            shutil.rmtree(path)
    for name, copy in (("whole", "out"), ("whole-table", "table")):
        if (folder / name).exists():
            shutil.copytree(folder / name, folder / copy)
    version = (out / "CURRENT").read_text().split()[0]
    FORGERIES[forgery](out / file)
    places = {"out": out, "recipe": folder / "recipe.yaml", "folder": folder, "version": version}
    code, shown = limited([word.format(**places) for word in words])
    wrong = [word for word in ("unexpected", "Traceback", "please report", "\x1b") if word in shown]
    outside = {entry.name for entry in folder.iterdir()} - before - {"out", "table", "export", "scores"}
    if code in (None, 1) or code < 0 or wrong or outside:
        return f"{words[0]} with {forgery} {file}: code {code}, {wrong}, {outside}: {shown[-300:]}"
    return ""


def limited(words: list[str]) -> tuple[int | None, str]:
    """Run a command in a child within limits; return its exit code, None if it hangs, and what it printed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _run_in_child(words, write)
    os.close(write)
    end, parts = time.monotonic() + WAITING, []
    while (left := end - time.monotonic()) > 0:
        if select.select([read], [], [], left)[0]:
            if not (part := os.read(read, 2**16)):
                break
            parts.append(part)
    else:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(read)
    shown, _, modules = b"".join(parts).decode("utf-8", "replace").partition(MODULES)
    for name in modules.split():  # once here, not seconds in every child
        with suppress(Exception):
            import_module(name)
    return (None if left <= 0 else status), shown


def _run_in_child(words: list[str], write: int) -> None:
    code, known = 1, set(sys.modules)
    try:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + BYTES, size + BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        done = CliRunner().invoke(app, words)
        code = int(done.exit_code)
        os.write(write, done.output.encode("utf-8", "replace")[: 2**16])
        os.write(write, (MODULES + "\n".join(set(sys.modules) - known)).encode())
    finally:
        os._exit(code)


@pytest.mark.parametrize(
    ("name", "n_cases"),
    [("published", SAMPLED), pytest.param("trained", SAMPLED_TRAINED, marks=pytest.mark.slow)],
)
def test_a_sample_of_the_sweep(name: str, n_cases: int, request: pytest.FixtureRequest) -> None:
    swept = request.getfixturevalue(name)
    every = list(swept.cases(FORGERIES))
    chosen = every[:: len(every) // n_cases + 1]
    assert not [wrong for case in chosen if (wrong := tried(swept, *case))]


def test_nothing_is_unpickled(published: Swept, tmp_path: Path) -> None:
    """A pickle in place of each file that holds arrays or weights."""
    trace = tmp_path / "trace"
    FORGERIES["pickle"] = replaced(pickle.dumps(Payload(str(trace))))
    try:
        kinds = (".npy", ".npz", ".safetensors", ".parquet")
        arrays = [file for file in published.files() if file.suffix in kinds and "state" in file.parts]
        assert arrays
        wrong = [tried(published, file, "pickle", ["run", "{recipe}"]) for file in arrays[:6]]
    finally:
        del FORGERIES["pickle"]
    assert not any(wrong)
    assert not trace.exists()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("name", ["published", "trained"])
def test_the_whole_sweep(name: str, forgery: str, request: pytest.FixtureRequest) -> None:
    swept = request.getfixturevalue(name)
    assert not [wrong for case in swept.cases([forgery]) if (wrong := tried(swept, *case))]
