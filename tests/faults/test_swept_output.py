"""Every file of an output in turn is replaced by hostile content, and commands run on it within limits.

A command ends within a minute and four gigabytes, with an exit code that is not 1, and unpickles nothing.
"""

from __future__ import annotations

import os
import pickle
import re
import resource
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from engine.cli.app import app
from tests.data import recipe_for, spurious_table, write_shards

SECONDS, BYTES = 60, 4 * 2**30
SAMPLED = 24
"""Cases that every run of the tests tries; the slow test tries all."""
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


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, recipe and an output with one version."""
    folder = tmp_path_factory.mktemp("swept")
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
    return folder


def files(folder: Path) -> list[Path]:
    """Return one file of each kind, relative to the output: its digits do not count."""
    kinds: dict[str, Path] = {}
    for path in sorted((folder / "whole").rglob("*")):
        if path.is_file():
            relative = path.relative_to(folder / "whole")
            kinds.setdefault(_kind(folder, relative), relative)
    return list(kinds.values())


def _kind(folder: Path, relative: Path) -> str:
    if relative.parts[0] != "store":
        return re.sub(r"[0-9a-f]{12,}", "", str(relative))
    state = folder / "whole" / "store" / relative.parts[1] / "state"
    owner = ",".join(sorted(entry.name for entry in state.iterdir())) if state.is_dir() else ""
    return owner + re.sub(r"\d+", "", "/".join(relative.parts[2:]))


def cases(folder: Path) -> Iterator[tuple[Path, str, list[str]]]:
    """Yield every file, forgery and command; the commands of a file take turns with its forgeries."""
    turn = 0
    for forgery in FORGERIES:
        for file in files(folder):
            for step in range(len(COMMANDS)):
                yield file, forgery, COMMANDS[(turn + step) % len(COMMANDS)]
            turn += 1


def tried(folder: Path, file: Path, forgery: str, words: list[str]) -> str:
    """Run a command on a copy of the output with one forged file; return what is wrong, or nothing."""
    out = folder / "out"
    for path in (out, folder / "export"):
        shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(folder / "whole", out)
    version = (out / "CURRENT").read_text().split()[0]
    FORGERIES[forgery](out / file)
    places = {"out": out, "recipe": folder / "recipe.yaml", "folder": folder, "version": version}
    code, shown = limited([word.format(**places) for word in words])
    wrong = [word for word in ("unexpected", "Traceback", "please report", "\x1b") if word in shown]
    outside = {entry.name for entry in folder.iterdir()} - {"data", "out", "whole", "export", "recipe.yaml"}
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
    end, parts = time.monotonic() + SECONDS, []
    while (left := end - time.monotonic()) > 0:
        if select.select([read], [], [], left)[0]:
            if not (part := os.read(read, 2**16)):
                break
            parts.append(part)
    else:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(read)
    return (None if left <= 0 else status), b"".join(parts).decode("utf-8", "replace")


def _run_in_child(words: list[str], write: int) -> None:
    code = 1
    try:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + BYTES, size + BYTES))
        done = CliRunner().invoke(app, words)
        code = int(done.exit_code)
        os.write(write, done.output.encode("utf-8", "replace")[: 2**16])
    finally:
        os._exit(code)


def test_a_sample_of_the_sweep(published: Path) -> None:
    every = list(cases(published))
    chosen = every[:: len(every) // SAMPLED + 1]
    assert not [wrong for case in chosen if (wrong := tried(published, *case))]


def test_nothing_is_unpickled(published: Path, tmp_path: Path) -> None:
    """A pickle in place of each file that holds arrays or weights."""
    trace = tmp_path / "trace"
    FORGERIES["pickle"] = replaced(pickle.dumps(Payload(str(trace))))
    try:
        kinds = (".npy", ".npz", ".safetensors", ".parquet")
        arrays = [file for file in files(published) if file.suffix in kinds and "state" in file.parts]
        assert arrays
        wrong = [tried(published, file, "pickle", ["run", "{recipe}"]) for file in arrays[:6]]
    finally:
        del FORGERIES["pickle"]
    assert not any(wrong)
    assert not trace.exists()


@pytest.mark.slow
def test_the_whole_sweep(published: Path) -> None:
    assert not [wrong for case in cases(published) if (wrong := tried(published, *case))]
