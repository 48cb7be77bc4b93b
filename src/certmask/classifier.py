"""A classifier with everything inside that decides its answers: preprocessing, device, precision, batch shape."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from certmask.errors import ClassifierError
from certmask.geometry import Size, checked_size

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Colour = tuple[float, float, float]


class Classifier:
    """Maps image batches in [0, 1], ``[n, 3, height, width]``, to class probabilities ``[n, classes]`` in float32.

    The model always sees batches of exactly ``batch`` images (the last one padded), so an image's answer does not
    depend on how many others came along. The model is copied: training yours further does not change this one.
    """

    def __init__(
        self,
        model: nn.Module | Callable[[Tensor], Tensor],
        size: Size | int = 224,
        *,
        mean: Colour = (0.0, 0.0, 0.0),
        std: Colour = (1.0, 1.0, 1.0),
        classes: int | None = None,
        class_names: Sequence[str] | None = None,
        device: torch.device | str = "cpu",
        precision: str = "fp32",
        batch: int = 32,
        name: str | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise ClassifierError(f"expected precision to be one of {', '.join(PRECISIONS)}, got {precision!r}")
        if batch < 1:
            raise ClassifierError(f"expected a batch of at least 1, got {batch}")
        if min(std) <= 0:
            raise ClassifierError(f"expected positive std, got {std}")
        self.size = checked_size(size, "image size")
        self.device, self.precision, self.batch = torch.device(device), precision, batch
        self.mean, self.std = mean, std
        self.name = name or type(model).__name__
        self.weights = weights_digest(model) if isinstance(model, nn.Module) else "unknown"
        self.model = self._placed(model)
        self._shift = torch.tensor(mean, device=self.device).view(1, 3, 1, 1)
        self._scale = torch.tensor(std, device=self.device).view(1, 3, 1, 1)
        self.classes = classes or self._count_classes()
        self.class_names = tuple(class_names) if class_names else tuple(str(c) for c in range(self.classes))
        if len(self.class_names) != self.classes:
            raise ClassifierError(f"expected {self.classes} class names, got {len(self.class_names)}")

    def _placed(self, model: nn.Module | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        if not isinstance(model, nn.Module):
            return model
        model = copy.deepcopy(model).eval().requires_grad_(False).to(self.device, PRECISIONS[self.precision])
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def _count_classes(self) -> int:
        with torch.inference_mode():
            logits = self._logits(torch.zeros(self.batch, 3, *self.size, device=self.device))
        if logits.ndim != 2 or logits.shape[0] != self.batch or logits.shape[1] < 2:
            raise ClassifierError(f"expected logits of shape [{self.batch}, classes], got {list(logits.shape)}")
        return int(logits.shape[1])

    def _logits(self, images: Tensor) -> Tensor:
        normal = ((images - self._shift) / self._scale).to(PRECISIONS[self.precision])
        try:
            return self.model(normal.contiguous(memory_format=torch.channels_last))
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ClassifierError(
                f"expected a model that takes {self.size[0]}×{self.size[1]} images, got {reason}"
            ) from error

    @torch.inference_mode()
    def run_batch(self, images: Tensor) -> Tensor:
        """Probabilities of exactly one full batch that is already on the device."""
        logits = self._logits(images)
        if logits.shape != (self.batch, self.classes):
            raise ClassifierError(f"expected logits of shape {[self.batch, self.classes]}, got {list(logits.shape)}")
        logits = logits.float()
        if not torch.isfinite(logits).all():
            raise ClassifierError(f"expected finite logits from {self.name}, got NaN or infinity")
        return logits.softmax(dim=1)

    def __call__(self, images: Tensor) -> Tensor:
        """Probabilities of any number of images."""
        images = checked_images(images, self.size).to(self.device)
        outputs = []
        for part in torch.split(images, self.batch):
            padded = torch.cat([part, part[-1:].expand(self.batch - len(part), -1, -1, -1)])
            outputs.append(self.run_batch(padded)[: len(part)])
        return torch.cat(outputs) if outputs else torch.empty(0, self.classes, device=self.device)

    def describe(self) -> dict[str, Any]:
        """What a results file records: the function that was certified."""
        return {
            "name": self.name,
            "weights_sha256": self.weights,
            "classes": self.classes,
            "size": list(self.size),
            "mean": list(self.mean),
            "std": list(self.std),
            "precision": self.precision,
            "batch": self.batch,
            "device": self.device.type,
        }


def checked_images(images: Tensor, size: Size) -> Tensor:
    """Images as float32; an error unless they are ``[n, 3, height, width]`` of the right size within [0, 1]."""
    if images.ndim != 4 or tuple(images.shape[1:]) != (3, *size):
        raise ClassifierError(f"expected images of shape [n, 3, {size[0]}, {size[1]}], got {list(images.shape)}")
    if not images.is_floating_point():
        raise ClassifierError(f"expected images as floating point in [0, 1], got {images.dtype}")
    if images.numel() and not (images.min() >= 0 and images.max() <= 1):
        raise ClassifierError(
            f"expected image values in [0, 1], got {images.min().item():.3g} to {images.max().item():.3g}"
        )
    return images.float()


def weights_digest(model: nn.Module) -> str:
    """sha256 over all parameters and buffers, by name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
