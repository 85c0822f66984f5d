"""Environment inference for invariant learning, at its optimum over all rows.

Source: Creager, Jacobsen, Zemel: Environment Inference for Invariant Learning, ICML 2021, section 3. A row
belongs to environment 1 with probability q_i = sigmoid(a_i), else to environment 2. With g_i = d/dw of the
loss of w times the logits z_i at w = 1, and N rows, ascent on a maximises the soft IRM penalty

    1/2 [(1/N sum q_i g_i)^2 + (1/N sum (1 - q_i) g_i)^2].

For softmax cross-entropy g_i = sum_c p_ic z_ic - z_iy with p = softmax(z).

Where the ascent ends is known. With A = sum q_i g_i, B = sum (1 - q_i) g_i its direction for row i is
(A - B) g_i q_i (1 - q_i) / N^2: every step moves A - B further the way it already points, so each row with
g_i > 0 ends in one environment and each with g_i < 0 in the other. No partition does better: the
penalty is convex in A, whose ends are just these. So the partition by the sign of g is taken at once,
without steps, step size or seed, and each row's environment depends on that row alone. (Batches, as in
the authors' code for large data, end elsewhere: each step sees another A - B.)

With two classes g_i = (p_i - y_i) z_i > 0 means that the row is misclassified: EIIL's environments are then
the right and the wrong rows of the reference model, as JTT's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64


def scale_derivatives(logits: npt.NDArray[np.floating], y: npt.NDArray[np.integer]) -> Float64:
    """Return the derivative of each row's cross-entropy by a factor on its logits, at factor 1.

    Parameters
    ----------
    logits : (n, C).
    y : (n,) class indices.

    Returns
    -------
    (n,) float64: positive where smaller logits would lower the loss.
    """
    # Differences to the true class: a row that is sure and right gives 0 less exactly nothing.
    Z = logits.astype(np.float64) - logits[np.arange(len(y)), y].astype(np.float64)[:, None]
    exponents = np.exp(Z - Z.max(axis=1, keepdims=True))
    weighted = (exponents * Z).sum(axis=1)
    return np.asarray(weighted / exponents.sum(axis=1))


def environments(derivatives: Float64) -> npt.NDArray[np.bool_]:
    """Return the mask (n,) of the environment whose rows a smaller scale would help; see the module's
    docstring.
    """
    return np.asarray(derivatives > 0)


def penalty(positive: float, negative: float, n_rows: int) -> float:
    """Return the soft IRM penalty of the partition, from the sums of positive and negative derivatives."""
    return (positive**2 + negative**2) / (2 * n_rows**2)
