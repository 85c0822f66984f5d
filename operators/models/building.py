"""Models built from a description and a seed, and the device that they run on."""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from connectors.foundation.messages import nearest
from operators.arrays import Float64
from operators.base import OperatorError
from operators.factories import check_allowed
from operators.models.linear import standard_deviations
from operators.models.spec import ModelSpec

VARIABLE = "ROWSIEVE_MAX_MODEL_BYTES"
"""The administrator's limit of a model's files, which holds for its weights in memory as well."""
MAX_BYTES, WEIGHT_BYTES = 2**31, 4


def prepare_device(cpus: float, gpus: float) -> torch.device:
    """Give torch ``cpus`` threads (at least 1); return the GPU if asked for and there, else the CPU.

    Call it at the start of every actor: libgomp keeps the number of threads of what ran in the process
    before.
    """
    torch.set_num_threads(max(1, int(cpus)))
    return device_for(gpus)


def device_for(gpus: float) -> torch.device:
    """Return the GPU if it is asked for and there, else the CPU. Call it in the worker, not in the driver.

    The GPU then computes products of float32 numbers, and convolutions, in full, and in one order, and does
    so for whatever else this process computes there.
    """
    if gpus <= 0 or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False  # torch's default is True, which leaves three digits
    torch.backends.cudnn.deterministic = True
    return torch.device("cuda")


class Standardize(nn.Module):
    """``(x - mean) / std``, fixed buffers of shape (n_features,); starts as the identity."""

    mean: Tensor
    std: Tensor

    def __init__(self, n_features: int, blocks: Sequence[int] = ()) -> None:
        super().__init__()
        self._blocks = list(blocks)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("std", torch.ones(n_features))

    @torch.no_grad()
    def set(self, mean: Float64, std: Float64) -> None:
        """Set the mean and the standard deviation of the rows, both (n_features,)."""
        self.mean.copy_(torch.from_numpy(mean))
        self.std.copy_(torch.from_numpy(standard_deviations(mean, std, self._blocks)))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise rows of shape (n, n_features)."""
        return (x - self.mean) / self.std


def build(spec: ModelSpec, seed: int) -> nn.Module:
    """Build the model with initial weights that depend on ``seed`` alone.

    The result is a ``Sequential``: ``standardize`` if asked for, then ``head`` for ``logistic``,
    ``hidden1, relu1, ..., head`` for ``mlp``, ``model`` for a factory's module or a pretrained network, whose
    pretrained weights are not loaded here. It maps (n, n_features)
    to (n, n_classes) logits, also for two classes. torch's global random state is left as it was.

    Raises
    ------
    OperatorError
        The factory cannot be imported or called, or what it returns does not give (n, n_classes); or a
        built-in model has more weights than a model may have bytes.
    """
    _check_size(spec)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: that would also reseed the GPUs, which fork_rng does not restore here.
        torch.default_generator.manual_seed(seed)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        if spec.standardize:
            layers["standardize"] = Standardize(spec.n_features, spec.blocks)
        layers.update(_layers(spec))
        return nn.Sequential(layers)


def _check_size(spec: ModelSpec) -> None:
    """Raise OperatorError for a model that nobody could read to predict, before its memory is asked for."""
    given = os.environ.get(VARIABLE, "").strip()
    most = int(given[:20]) if given.isascii() and given.isdigit() else MAX_BYTES
    n_weights = count_weights(spec)
    size = WEIGHT_BYTES * n_weights
    if size > most:
        raise OperatorError(
            f"model {spec.model!r} for {spec.n_features:,} features has {n_weights:,} weights, {size:,} "
            f"bytes, and {most:,} are allowed for a model on this installation. Give it fewer features, or "
            f"`hidden` smaller numbers; its administrator can raise {VARIABLE}."
        )


def count_weights(spec: ModelSpec) -> int:
    """Return the number of a model's weights, before its memory is taken; 0 for a factory's."""
    if spec.pretrained is None:
        return spec.n_weights
    from operators.models import pretrained

    return pretrained.count_weights(spec.pretrained, spec.n_classes)


def _layers(spec: ModelSpec) -> OrderedDict[str, nn.Module]:
    if spec.pretrained is not None:
        from operators.models.pretrained import PretrainedNetwork

        network = PretrainedNetwork(spec.pretrained, spec.n_classes)
        _check_output(spec, network)
        return OrderedDict(model=network)
    if ":" in spec.model:
        return OrderedDict(model=_from_factory(spec))
    widths = (spec.n_features, *(spec.hidden if spec.model == "mlp" else ()))
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (wide, narrow) in enumerate(pairwise(widths), start=1):
        layers[f"hidden{number}"] = nn.Linear(wide, narrow)
        layers[f"relu{number}"] = nn.ReLU()
    layers["head"] = nn.Linear(widths[-1], spec.n_classes)
    return layers


def _from_factory(spec: ModelSpec) -> nn.Module:
    factory = _find_factory(spec.model)
    call = f"{spec.model.partition(':')[2]}({spec.n_features}, {spec.n_classes})"
    try:
        module = factory(spec.n_features, spec.n_classes)
    except Exception as error:
        raise OperatorError(
            f"model '{spec.model}': the call {call} failed with {type(error).__name__}: {error}. "
            "A factory takes (n_features, n_classes) and returns a torch.nn.Module."
        ) from error
    if not isinstance(module, nn.Module):
        raise OperatorError(
            f"model '{spec.model}': {call} returned a {type(module).__name__}; "
            "a factory must return a torch.nn.Module."
        )
    _check_output(spec, module)
    return module


def _find_factory(path: str) -> Callable[..., Any]:
    check_allowed(path)
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise OperatorError(
            f"model '{path}': no module named '{error.name}'. Check the spelling, and that the package is "
            "installed or on PYTHONPATH on every node."
        ) from error
    factory = getattr(module, attribute, None)
    if callable(factory):
        return factory  # type: ignore[no-any-return]
    hint = nearest(attribute, [name for name in dir(module) if callable(getattr(module, name))])
    raise OperatorError(f"model '{path}': '{module_name}' has no callable '{attribute}'.{hint}")


def _check_output(spec: ModelSpec, module: nn.Module) -> None:
    """Check that two rows of zeros give two rows of logits; this also lets lazy layers learn their shapes."""
    expected = (2, spec.n_classes)
    modes = [(part, part.training) for part in module.modules()]
    try:
        with torch.no_grad():
            output = module.eval()(torch.zeros(2, spec.n_features))
    except Exception as error:
        raise OperatorError(
            f"model '{spec.model}': an input of shape (2, {spec.n_features}) failed with "
            f"{type(error).__name__}: {error}. The module must accept (n, {spec.n_features}) float32 rows."
        ) from error
    finally:
        for part, training in modes:
            part.training = training
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if shape != expected:
        raise OperatorError(
            f"model '{spec.model}': an input of shape (2, {spec.n_features}) gave {shape} instead of "
            f"{expected}. The module must end in one logit per class, also for two classes."
        )
