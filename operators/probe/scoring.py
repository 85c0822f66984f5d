"""Predictions, losses and logits of a trained classifier."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from operators.probe.rows import Rows

CHUNK = 4096


def predict(
    model: nn.Module, X: NDArray[np.float32], y: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the predicted class and the loss of each row; the model, in eval mode, computes where its
    parameters lie.

    Parameters
    ----------
    X : (n, d) features.
    y : (n,) class indices.

    Returns
    -------
    The largest logit's class (n,), the smallest of equals, and the softmax cross-entropy (n,) in nats.
    """
    device = next(model.parameters()).device
    prediction = np.empty(len(y), dtype=np.int32)
    loss = np.empty(len(y), dtype=np.float32)
    for start in range(0, len(y), CHUNK):
        rows = slice(start, start + CHUNK)
        with torch.no_grad():
            logits = model(torch.tensor(X[rows], device=device))
            labels = torch.tensor(y[rows], dtype=torch.int64, device=device)
            loss[rows] = nn.functional.cross_entropy(logits, labels, reduction="none").cpu().numpy()
        prediction[rows] = logits.cpu().numpy().argmax(axis=1)
    return prediction, loss


def logits(model: nn.Module, X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the logits (n, C) of rows X (n, d)."""
    device = next(model.parameters()).device
    with torch.no_grad():
        parts = [
            model(torch.tensor(X[start : start + CHUNK], device=device)).cpu().numpy()
            for start in range(0, len(X), CHUNK)
        ]
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def score(model: nn.Module, rows: Rows) -> Tensor:
    """Return the weighted sums over rows of the loss and of right predictions: (2,) float64."""
    prediction, loss = predict(model, rows.X, rows.y)
    right = prediction == rows.y
    return torch.tensor([rows.weight @ loss.astype(np.float64), rows.weight @ right.astype(np.float64)])
