import sys
from importlib.util import find_spec

import pytest

from tests.benchmarks.__main__ import NAMES, commands
from tests.benchmarks.lp import peers
from tests.benchmarks.lp.__main__ import FORMS
from tests.benchmarks.lp.games import Game


@pytest.mark.parametrize("name", FORMS)
def test_peer_solves_the_same_game(name):
    losses = Game(300, "boosted", True).losses(40)
    path = FORMS[name](losses, 60.0)
    assert len(path.seconds) == 40
    assert path.seconds == sorted(path.seconds)
    assert path.gap <= 1e-5


def test_peer_is_cut_at_its_budget():
    losses = Game(300, "independent", False).losses(40)
    assert len(peers.highs_warm(losses, 0.0).seconds) == 1
    cut = peers.highs_cold(losses, 0.0, "simplex").seconds
    assert len(cut) == 40
    assert cut[-1] - cut[-2] == pytest.approx(cut[20] - cut[19])  # as the last round that was measured


def test_entropy_peer_solves_the_same_game():
    losses = Game(300, "boosted", False).losses(12)
    assert peers.clarabel_alone(losses, 50.0)[1] <= 1e-5
    assert peers.newton(losses, 50.0)[1] <= 1e-7


def test_front_door():
    every = [command[2] for command in commands(["--write-readme"])]
    assert every == [f"tests.benchmarks.{name}" for name in NAMES]
    assert all(find_spec(module) for module in every)
    assert commands(["lp", "--large"]) == [[sys.executable, "-m", "tests.benchmarks.lp", "--large"]]
    with pytest.raises(SystemExit, match="there are dbscan"):
        commands(["lpboost"])
