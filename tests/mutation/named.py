"""Mutants that readers of the code named, because the tests of their time did not notice them.

``test_named.py`` applies each to a copy of the project and runs the unit tests beside it, which must fail.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NamedMutant:
    """A change of one place of one module, and the unit tests that notice it."""

    module: str
    old: str
    new: str
    tests: str
    """A file of tests below ``tests/unit/operators``, or one test of it."""

    def code(self, text: str) -> str:
        """Return the module's text with the change. Raises ValueError unless there is one such place."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.module} has {text.count(self.old)} places {self.old!r}: name one")
        return text.replace(self.old, self.new)


NAMED = (
    NamedMutant(
        "operators/splits/kernel.py",
        "max(scatter, 0.0) / max(n - 1, 1)",
        "max(scatter, 0.0) / max(n, 1)",
        "splits/test_splits.py::test_the_mmd_of_random_splits_is_the_mean_over_all_of_them",
    ),
    NamedMutant(
        "operators/weights/kernel.py",
        "rank > largest[value][:2]",
        "rank >= largest[value][:2]",
        "weights/test_largest_groups.py::test_of_equal_groups_the_lowest_is_the_largest",
    ),
    NamedMutant(
        "operators/eos/losses.py",
        "self.l2 * n_targets)",
        "self.l2)",
        "eos/test_eos.py::test_the_ridge_of_many_targets_is_that_of_scikit_learn",
    ),
    NamedMutant(
        "operators/eos/losses.py",
        "inverse_diagonal) / (2 * len(self.mean))",
        "inverse_diagonal) / len(self.mean)",
        "eos/test_eos.py::test_the_regularised_covariance_minimises_loss_and_penalty",
    ),
    NamedMutant(
        "operators/dckm/steps.py",
        "seed + len(centres)",
        "seed",
        "dckm/test_dckm.py::test_draws_of_different_centres_are_independent",
    ),
    NamedMutant(
        "operators/probe/minibatch.py",
        "default_rng([*place, slot])",
        "default_rng([place[0], slot])",
        "probe/test_probe.py::test_every_epoch_has_an_order_of_its_own",
    ),
    NamedMutant(
        "operators/neighbours/class_index.py",
        "sparse = 1.0 / density(",
        "sparse = 1.0 * density(",
        "neighbours/test_landmarks.py::test_sparse_rows_are_drawn_more_often_than_their_share",
    ),
    NamedMutant(
        "operators/metrics/drift.py",
        "Shift(value, 1.645 * error",
        "Shift(value, 3 * error",
        "../engine/runs/test_drift.py::test_the_noise_of_a_rise_is_the_quantile_of_a_difference_of_shares",
    ),
    NamedMutant(
        "operators/dckm/kernel.py",
        "if rises or (not first and",
        "if (not first and",
        "dckm/test_dckm.py::test_the_objective_never_rises",
    ),
    NamedMutant(
        "operators/dckm/kernel.py",
        "falls = point.value <= here - self._rate * squared_length / 2",
        "falls = True",
        "dckm/test_dckm.py::test_the_objective_never_rises",
    ),
)
