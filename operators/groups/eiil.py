"""Environment inference for invariant learning, at its optimum over all rows.

Source: Creager, Jacobsen, Zemel: Environment Inference for Invariant Learning, ICML 2021, section 3. A row
belongs to environment 1 with probability q_i = sigmoid(a_i), else to environment 2. With g_i = d/dw of the
loss of w times the logits z_i at w = 1, and N rows, ascent on a maximises the soft IRM penalty

    1/2 [(1/N sum q_i g_i)^2 + (1/N sum (1 - q_i) g_i)^2].

For softmax cross-entropy g_i = sum_c p_ic z_ic - z_iy with p = softmax(z).

The maximum has a closed form. With A = sum q_i g_i and B = sum (1 - q_i) g_i, the gradient for row i is
(A - B) g_i q_i (1 - q_i) / N^2, so every step increases |A - B|, and the ascent puts the rows with g_i > 0
into one environment and those with g_i < 0 into the other. No partition is better, because the penalty is
convex in A and these are its extreme values. The partition by the sign of g is therefore computed directly,
and each row's environment depends on that row alone. (Ascent on batches, as in the authors' code for large
data, ends elsewhere, since A - B differs from batch to batch.)

With two classes g_i = (p_i - y_i) z_i > 0 means that the row is misclassified, so the environments of EIIL
are the right and the wrong rows of the reference model, as in JTT.
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
    # Logits relative to the true class: a certain and right row then has a derivative of exactly 0.
    Z = logits.astype(np.float64) - logits[np.arange(len(y)), y].astype(np.float64)[:, None]
    exponents = np.exp(Z - Z.max(axis=1, keepdims=True))
    weighted = (exponents * Z).sum(axis=1)
    return np.asarray(weighted / exponents.sum(axis=1))


def environments(derivatives: Float64) -> npt.NDArray[np.bool_]:
    """Return the mask (n,) of the environment with positive derivatives, whose loss a smaller scale
    lowers.
    """
    return np.asarray(derivatives > 0)


def penalty(positive: float, negative: float, n_rows: int) -> float:
    """Return the soft IRM penalty of the partition, from the sums of positive and negative derivatives."""
    return (positive**2 + negative**2) / (2 * n_rows**2)
