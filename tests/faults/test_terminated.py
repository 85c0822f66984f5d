"""A run that is told to end (a cancelled job, a pod that is moved) gives its lease back; another goes on."""

import os
import signal
from pathlib import Path

import pytest
import typer

from engine.cli.common import finish_on_sigterm, print_errors
from engine.storage.lease import read_holder
from tests.data import recipe_for, spurious_table, write_shards
from tests.faults.processes import finish, run_recipe, until


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_block_in_order(sent: signal.Signals) -> None:
    ended = []
    before = signal.getsignal(signal.SIGTERM)
    # A shell that starts the tests in the background tells them to ignore it.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)

    def work() -> None:
        with print_errors(verbose=False), finish_on_sigterm():
            try:
                signal.raise_signal(sent)
            finally:
                ended.append(True)

    try:
        with pytest.raises(typer.Exit) as found:
            work()
    finally:
        signal.signal(signal.SIGINT, interrupt)
    assert ended
    assert found.value.exit_code == 128 + sent
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_told_to_end(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    write_shards(tmp_path / "data", spurious_table())
    recipe = recipe_for(tmp_path / "data", tmp_path / "out")
    process = run_recipe(tmp_path, recipe, "--log-format", "plain")
    until(lambda: list((tmp_path / "out").glob("store/*/part-*.json")), process)
    assert process.pid is not None
    os.kill(process.pid, sent)
    assert finish(process) == code
    holder = read_holder(tmp_path / "out")
    assert holder is not None
    assert holder.released
    assert "error: stopped." in (tmp_path / "recipe.log").read_text()
    assert finish(run_recipe(tmp_path, recipe)) == 0
    assert (tmp_path / "out" / "CURRENT").exists()
