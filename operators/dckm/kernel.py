"""Decorrelation-regularised k-means (DCKM) as passes over rows, each of which returns d x d and K x d sums.

The objective (equation 7) for weights w = omega^2 >= 0, centres f_k and assignments c(i) is

    sum_i w_i |z_i - f_c(i)|^2 + lambda1 balance(w) + lambda2 sum_i w_i^2 + lambda3 (sum_i w_i - 1)^2

with the balance cost of :mod:`operators.dckm.balance`. An outer loop sets the centres to the weighted means
(equation 10), assigns each row to the nearest centre (14), and takes one gradient step in omega (15 to 20).

The paper leaves the size of the step open. Here the gradient g is taken at
y = omega + k / (k + 3) (omega - omega before), and the step size r is halved until
f(y - r g) <= f(y) - r |g|^2 / 2 (Beck & Teboulle 2009). Each loop begins with twice the step size of the last
one, because curvature falls with the sum of weights and trying a size reads no rows. A loop in which the
objective would rise is repeated without momentum (O'Donoghue & Candes 2015). It can then rise by rounding
alone: products of features are float32, and a feature's balance jumps to 0 where its share of the weight
crosses :data:`operators.dckm.balance.MIN_SHARE`. The fit ends there with the weights of the loop before, so
the objective never rises by more than the last digits of float64.

With the paper's factors the sum of weights falls towards 0 for as long as loops run, and ever fewer rows hold
all of it. ``min_effective_share`` is a lower limit of the effective sample size: a step that would go below
it is halved. The paper has no such limit (0), but a step that leaves no weight at all is halved as well.

The gradient is that of equation 16. Equation 17, as printed, lacks the factor 2 of d(omega^2) =
2 omega d(omega) in its first term, the clusters' error; the other terms have it. A test compares the gradient
with finite differences.

Source: Wang, Fan, Kuang, Shi, Liu, Wang: Decorrelated Clustering with Data Selection Bias, IJCAI 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from operators.arrays import Float64, Labels
from operators.dckm import steps
from operators.dckm.balance import Coded, balance_cost, balance_derivative, correlation
from operators.dckm.steps import (
    Clusters,
    FinalSums,
    GradientSums,
    InitialSums,
    LineSums,
    RowState,
    Slope,
    candidate,
)

Init: TypeAlias = Literal["random", "k-means++"]
INITS: tuple[Init, ...] = ("random", "k-means++")
MAX_HALVINGS = 100
"""Step sizes that are tried before a point counts as stationary."""
MAX_FLOOR_HALVINGS = 8
"""Further halvings of a step that lowers the objective enough but leaves too small an effective sample size;
after them the weights stay as they are."""
AT_LIMIT = 1e-3
"""An effective sample size above its lower limit by less than this share counts as at the limit."""
ROUNDING = 1e-9
"""Relative rounding error of the effective sample size of equal weights."""


class Passes(Protocol):
    """Passes over all rows, which are in memory or in shards. Each method is one pass."""

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        ...

    def initialise(self, n_clusters: int, start: float, seed: int) -> InitialSums:
        """Make the pass of :func:`operators.dckm.steps.initialise`."""
        ...

    def draw(self, centres: Float64, seed: int) -> Float64:
        """Return the row (d,) that k-means++ draws next; see :mod:`operators.dckm.steps`."""
        ...

    def assign_rows(self, centres: Float64 | None, step: float | None, momentum: float) -> GradientSums:
        """Make the pass of :func:`operators.dckm.steps.assign_rows`."""
        ...

    def compute_gradient(self, slope: Slope, n_clusters: int) -> LineSums:
        """Make the pass of :func:`operators.dckm.steps.compute_gradient`."""
        ...

    def finish(self, centres: Float64 | None, step: float) -> FinalSums:
        """Make the pass of :func:`operators.dckm.steps.finish`."""
        ...


@dataclass(frozen=True, kw_only=True)
class DckmSettings:
    """Factors of the objective and limits of the search; ``n_clusters`` 0 leaves out the clusters' error."""

    n_clusters: int
    lambda1: float
    lambda2: float
    lambda3: float
    max_iter: int
    tol: float
    init: Init = "random"
    seed: int = 0
    min_effective_share: float = 0.0


@dataclass(frozen=True)
class Solution:
    """The result of :func:`solve`, apart from the weights and labels of the rows.

    Attributes
    ----------
    centres : (K, d) weighted means; None without clusters.
    objective : (n_iter,) after each outer loop; never rises but for float64's last digits.
    balance : (n_iter,) balance cost after each outer loop.
    converged : the objective changed by less than ``tol`` in the last loop, or no step lowers it.
    limited : the search ended at ``min_effective_share``, which allows steps of hardly any length there.
    correlation_before, correlation_after : Frobenius norm of the off-diagonal covariance, unweighted and
        weighted.
    effective_sample_size : (sum w)^2 / sum w^2.
    weight_sum : sum of w; divide by its mean for weights of mean 1.
    sizes : (K,) rows of each cluster.
    """

    centres: Float64 | None
    objective: Float64
    balance: Float64
    converged: bool
    limited: bool
    correlation_before: float
    correlation_after: float
    effective_sample_size: float
    weight_sum: float
    sizes: Float64


class LoopEnd(NamedTuple):
    """The point at which an outer loop ends."""

    step: float
    """Size of the step from y; 0 if none lowers the objective."""
    value: float
    """Value of the objective."""
    without_error: float
    """Objective without the clusters' error."""
    balance: float
    """Value of the balance cost."""
    clusters: Clusters
    effective: float
    """Effective sample size; 0 where no weight is left."""


def solve(passes: Passes, settings: DckmSettings) -> Solution:
    """Minimise the objective. The weights and labels of the rows remain with ``passes``."""
    n, k = passes.n_rows, settings.n_clusters
    # The paper starts at w = 1. Without clusters only the penalty (sum w - 1)^2 sets the scale: start at its
    # zero.
    initial = passes.initialise(k, 1.0 if k else n**-0.5, settings.seed)
    centres = _first_centres(passes, initial, settings)
    search = _Search(passes, settings)
    values, balances = list[float](), list[float]()
    ended = False
    while len(values) < settings.max_iter and not ended:
        point = search.advance(centres)
        centres = None if centres is None else point.clusters.centres(centres)
        values.append(point.value)
        balances.append(point.balance)
        ended = point.step == 0 or (len(values) > 1 and abs(values[-1] - values[-2]) < settings.tol)
    done = passes.finish(centres, search.point.step)
    weight, square = float(done.weight), float(done.square)
    limited = ended and weight**2 / square <= settings.min_effective_share * n * (1 + AT_LIMIT)
    return Solution(
        centres=centres,
        objective=np.array(values),
        balance=np.array(balances),
        converged=ended and not limited,
        limited=limited,
        correlation_before=correlation(initial.gram, initial.total, n),
        correlation_after=correlation(done.gram, done.total, weight),
        effective_sample_size=weight**2 / square,
        weight_sum=weight,
        sizes=done.sizes,
    )


def _first_centres(passes: Passes, initial: InitialSums, settings: DckmSettings) -> Float64 | None:
    if not settings.n_clusters:
        return None
    everywhere = np.tile(initial.total / passes.n_rows, (settings.n_clusters, 1))
    if settings.init == "random":
        return initial.clusters.centres(everywhere)
    for index in range(settings.n_clusters):
        everywhere[index] = passes.draw(everywhere[:index], settings.seed)
    return everywhere


class _Search:
    """Takes one step in omega per outer loop, and keeps step size and momentum from loop to loop."""

    def __init__(self, passes: Passes, settings: DckmSettings) -> None:
        self._passes = passes
        self._settings = settings
        self._rate = 0.5
        self._steps = 0
        self._floor = settings.min_effective_share * passes.n_rows * (1 - ROUNDING)
        self.point: LoopEnd

    def advance(self, centres: Float64 | None) -> LoopEnd:
        """Assign rows to the centres, take a step, and return where it ends."""
        first = not self._steps
        point, before = self._try(
            centres, None if first else self.point.step, self._steps / (self._steps + 3)
        )
        if not first and not self._improves(point, before):
            self._steps = 0
            point, before = self._try(centres, None, 0.0)
            if not self._improves(point, before):
                value = self.point.without_error + before
                point = self.point._replace(step=0.0, value=value, clusters=point.clusters)
        self._steps += 1
        self.point = point
        return point

    def _improves(self, point: LoopEnd, before: float) -> bool:
        """Return whether a point is allowed, and no worse than the last one with the new assignment."""
        return self._keeps_rows(point) and point.value <= self.point.without_error + before

    def _keeps_rows(self, point: LoopEnd) -> bool:
        return point.effective > 0 and point.effective >= self._floor

    def _try(self, centres: Float64 | None, step: float | None, momentum: float) -> tuple[LoopEnd, float]:
        """Return the next point, and the clusters' error with the new assignment at the previous point."""
        chosen = self._settings
        self._rate *= 2
        at_y = self._passes.assign_rows(centres, step, momentum)
        weight = float(at_y.moments.weight)
        cost, derivative = balance_derivative(at_y.moments)
        common = 2 * chosen.lambda3 * (weight - 1)
        slope = Slope(derivative, chosen.lambda1, chosen.lambda2, common)
        line = self._passes.compute_gradient(slope, chosen.n_clusters)
        here = float(at_y.error) + self._without_error(cost, float(at_y.square), weight)
        return self._backtrack(at_y, line, here), float(at_y.error_before)

    def _backtrack(self, at_y: GradientSums, line: LineSums, here: float) -> LoopEnd:
        """Halve the step size r until the objective falls by at least r |g|^2 / 2."""
        squared_length = float(line.second.weight)  # |g|^2
        too_low = 0
        for _ in range(MAX_HALVINGS):
            point = self._at(at_y, line, self._rate)
            falls = point.value <= here - self._rate * squared_length / 2
            if falls and self._keeps_rows(point):
                return point
            too_low += falls
            if too_low > MAX_FLOOR_HALVINGS:
                break
            self._rate /= 2
        return self._at(at_y, line, 0.0)

    def _at(self, at_y: GradientSums, line: LineSums, step: float) -> LoopEnd:
        moments = at_y.moments.along(line.first, line.second, step)
        cost = balance_cost(moments)
        square, error = (float(np.polyval(c[::-1], step)) for c in (line.square, line.error))
        weight = float(moments.weight)
        rest = self._without_error(cost, square, weight)
        powers = step ** np.arange(3)
        clusters = Clusters(*(np.tensordot(powers, part, 1) for part in line.clusters))
        # A step may end where all weights are 0; near there the sums along the step are rounding.
        effective = weight**2 / square if weight > 0 and square > 0 else 0.0
        return LoopEnd(step, error + rest, rest, cost, clusters, effective)

    def _without_error(self, cost: float, square: float, weight: float) -> float:
        chosen = self._settings
        return chosen.lambda1 * cost + chosen.lambda2 * square + chosen.lambda3 * (weight - 1) ** 2


class InMemory:
    """Passes over rows in memory; implements :class:`operators.dckm.kernel.Passes`.

    Attributes
    ----------
    weight, labels : (n,) weights that minimise the objective and cluster of each row (0 without clusters),
        both set by :meth:`finish`.
    """

    weight: Float64
    labels: Labels

    def __init__(self, coded: Coded) -> None:
        self._coded = coded
        self._ids = np.arange(len(coded))
        self._state: RowState

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return len(self._coded)

    def initialise(self, n_clusters: int, start: float, seed: int) -> InitialSums:
        """Make the pass of :func:`operators.dckm.steps.initialise`."""
        self._state, sums = steps.initialise(self._coded, self._ids, n_clusters, start, seed)
        return sums

    def draw(self, centres: Float64, seed: int) -> Float64:
        """Return the row (d,) that k-means++ draws next."""
        return candidate(self._coded, self._ids, centres, seed).row

    def assign_rows(self, centres: Float64 | None, step: float | None, momentum: float) -> GradientSums:
        """Make the pass of :func:`operators.dckm.steps.assign_rows`."""
        self._state, sums = steps.assign_rows(self._coded, self._state, centres, step, momentum)
        return sums

    def compute_gradient(self, slope: Slope, n_clusters: int) -> LineSums:
        """Make the pass of :func:`operators.dckm.steps.compute_gradient`."""
        self._state, sums = steps.compute_gradient(self._coded, self._state, slope, n_clusters)
        return sums

    def finish(self, centres: Float64 | None, step: float) -> FinalSums:
        """Make the pass of :func:`operators.dckm.steps.finish`."""
        self.weight, self.labels, sums = steps.finish(self._coded, self._state, centres, step)
        return sums
