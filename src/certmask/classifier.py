"""A classifier with everything inside that decides its answers: preprocessing, views, precision, batch shape."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from math import isnan
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from certmask.backends import PRECISIONS, backend_named, is_compilable
from certmask.backends.arithmetic import as_deployed, compile_options, float32_mode
from certmask.backends.devices import best_batch, best_precision, device_name, present_device
from certmask.backends.outputs import are_probabilities, checked_logits, logits_of
from certmask.company import ROUNDING, company_change, probes, swayed_by_company
from certmask.errors import CertmaskError, ClassifierError
from certmask.identity import known_of, packages_of
from certmask.images import Colour, checked_colour, checked_images, fill_for, is_told
from certmask.threat import Size, checked_size
from certmask.views import PLAIN, checked_views, turned

T = TypeVar("T")


class Classifier:
    """Maps image batches in [0, 1], ``[n, 3, height, width]``, to class probabilities ``[n, classes]`` in float32.

    The model always sees batches of exactly ``batch`` images (the last one padded), so an image's answer does not
    depend on how many others came along. All arguments but the names are part of the function that is certified.

    Args:
        model: a network, which is copied (training yours further does not change this one), or any callable; it takes
            normalized images and gives logits ``[n, classes]``, alone, as ``.logits``, as ``["logits"]``, or as the
            first of a tuple in which nothing else could be the logits.
        size: height and width of the input, or one number for a square.
        mean: colour that is subtracted from an image, per channel; what masks hide is painted with it, unless the
            network has ``told = True``: it is handed ``HIDDEN`` there, and normalizes by itself (mean 0, std 1).
        std: what the difference is then divided by, per channel.
        classes: how many there are; None asks the model.
        class_names: one for each class; None calls them 0, 1, 2 …
        device: ``cpu``, ``cuda``, ``cuda:1`` …, or ``auto``, the GPU where there is one.
        precision: ``fp32``, ``tf32``, ``bf16``, ``fp16``, or ``auto``, bf16 where the hardware computes it natively
            (fp32 for a plain callable, a ScriptModule, and, with a warning, a network that fails in bf16).
        batch: images per forward pass; None takes a size that suits the device. Halved until it fits into memory.
        compiled: whether torch compiles the network; None does on a GPU where kernels can be chosen without timing.
        backend: what computes the logits: ``torch``, or ``openvino``, which is faster on many CPUs, or ``onnxruntime``,
            which computes ONNX files.
        name: how results files call the model; None takes the name of its class.
        views: what the model is shown of a picture: ``plain``, ``mirror`` (left and right exchanged), ``upside-down``;
            of several the mean of the probabilities is taken. Each costs a pass. What a mask hides is hidden in all.
        files_sha256: a digest of the files that a network was read from, where weights and layers do not say it all.

    ``grid`` is the side of the square tokens into which a network cuts its input, as far as its layers tell; else 1.
    ``fill`` is what masks paint; ``told`` says whether the network knows it from any colour.
    """

    piecewise: ClassVar[bool] = False
    """Whether passes give local evidence, cell by cell, in the place of votes."""

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
        precision: str = "auto",
        batch: int | None = None,
        compiled: bool | None = None,
        backend: str = "torch",
        name: str | None = None,
        views: Sequence[str] = PLAIN,
        files_sha256: str | None = None,
    ) -> None:
        if isinstance(model, type) or not callable(model):
            raise ClassifierError(f"expected a network or a function, got {model!r}: load_classifier finds one by name")
        self.device = present_device(device)
        self.precision = precision
        if precision == "auto":
            best = best_precision(self.device) if _convertible(model) else "fp32"
            self.precision = best if best in backend_named(backend).precisions else "fp32"
        if self.precision not in PRECISIONS:
            raise ClassifierError(f"expected precision to be auto, {', '.join(PRECISIONS)}, got {precision!r}")
        if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
            raise ClassifierError(f"expected a batch of at least 1, got {batch!r}")
        self.size = checked_size(size, "image size")
        self.mean, self.std = checked_colour(mean, "mean"), checked_colour(std, "std")
        if min(self.std) <= 0:
            raise ClassifierError(f"expected std of three positive numbers, got {std!r}")
        self.views = checked_views(views)
        self.name = name or type(model).__name__
        self.told = is_told(model)
        self.fill = fill_for(model, self.mean)
        if self.told and (self.mean, self.std) != ((0.0,) * 3, (1.0,) * 3):
            raise ClassifierError(
                f"expected mean 0 and std 1 for {self.name}, which is told what is hidden and normalizes by itself, "
                f"got mean {self.mean} and std {self.std}"
            )
        self.grid, self.weights, self.architecture = known_of(model, self.size)
        self.backend, self.files = backend, files_sha256
        self.packages = packages_of(model, backend)
        compilable = self.device.type == "cuda" and _convertible(model) and bool(compile_options())
        self.compiled = is_compilable(model) and (compilable if compiled is None else compiled)
        self._shift = torch.tensor(self.mean, device=self.device).view(1, 3, 1, 1)
        self._scale = torch.tensor(self.std, device=self.device).view(1, 3, 1, 1)
        self.batch = batch or best_batch(self.device)
        self.classes = self._settled(model, fall_back=precision == "auto" and self.precision != "fp32")
        if classes not in (None, self.classes):
            raise ClassifierError(f"expected logits of {classes} classes, got {self.classes}")
        self.company = self._fitted(self._check_company)
        self.class_names = tuple(class_names) if class_names else tuple(str(c) for c in range(self.classes))
        if len(self.class_names) != self.classes:
            raise ClassifierError(f"expected {self.classes} class names, got {len(self.class_names)}")

    def _settled(self, model: nn.Module | Callable[[Tensor], Tensor], fall_back: bool) -> int:
        """Put the model where it computes and count its classes; if it fails there and may ``fall_back``, in fp32."""
        try:
            self._place(model)
            return self._fitted(self._count_classes)
        except ClassifierError as error:
            if not fall_back:
                raise
            tried, reason = self.precision, _reason(error.__cause__ or error)
        self.precision = "fp32"
        classes = self._settled(model, fall_back=False)
        warnings.warn(f"{self.name} runs in fp32, because it fails in {tried}: {reason}", stacklevel=3)
        return classes

    def _place(self, model: nn.Module | Callable[[Tensor], Tensor]) -> None:
        row = backend_named(self.backend)
        try:
            self.model = row.place(model, self.name, self.size, self.device, self.precision)
        except (CertmaskError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a network of unknown origin can fail to be copied in any way
            where = f"{self.device} in {self.precision}"
            raise ClassifierError(f"expected a network that can be copied to {where}, got {_reason(error)}") from error
        self._arranged = row.arranged

    def _fitted(self, work: Callable[[], T]) -> T:
        """Do some work on one batch; while it does not fit into memory, halve the batch."""
        while True:
            try:
                return work()
            except torch.OutOfMemoryError:
                self.halve()

    def halve(self) -> None:
        """Go on with batches of half the size; an error if they hold one image already."""
        if self.batch == 1:
            raise self.no_memory() from None
        self.batch //= 2
        torch.cuda.empty_cache()

    def check_batch(self, _batch: int) -> None:
        """An error if the model is another one in batches of this shape; a plain one is asked about fixed pictures."""

    @torch.inference_mode()
    def _count_classes(self) -> int:
        """From a batch of pictures between black and noise; warns of a model that gives probabilities."""
        noise = torch.rand(self.batch, 3, *self.size, generator=torch.Generator().manual_seed(1))
        light = torch.linspace(0, 1, self.batch).view(-1, 1, 1, 1)
        logits = checked_logits(self.logits((light * noise).to(self.device)), self.batch)
        if are_probabilities(logits):
            warnings.warn(
                f"{self.name} gives probabilities where logits are expected: softmax is taken twice, and every vote is "
                "nearly a tie; hand over the network without its last softmax",
                stacklevel=6,
            )
        return int(logits.shape[1])

    @torch.inference_mode()
    def _check_company(self) -> float:
        """Refuse a model whose answer about one of three fixed pictures depends on its company; else the change seen.

        That is: on its place in the batch, on its neighbours there, on chance or on what it was asked before. An
        attacker would have a say in these, and every certificate would be void.
        """
        change = company_change(self._shaped_logits, probes(self.size).to(self.device), self.batch)
        if isnan(change):
            raise self.no_numbers()
        if change > ROUNDING[self.precision]:
            share = f"{change:.2g}" if change < 1 else "1 or more"
            raise swayed_by_company(f"a logit that changed by {share} of their scale")
        if change:
            warnings.warn(
                f"{self.name} rounds otherwise in another place of the batch, by {change:.2g} of its logits' scale: "
                "certify with a measured margin (auto), not with 0",
                stacklevel=4,
            )
        return change

    def logits(self, images: Tensor) -> Tensor:
        """The model's logits on images that are already on the device."""
        normal = self._arranged((images - self._shift) / self._scale, self.precision)
        try:
            with float32_mode(self.device, tf32=self.precision == "tf32"), as_deployed(self.device):
                returned = self.model(normal)
        except (CertmaskError, torch.OutOfMemoryError):
            raise
        except (RuntimeError, AssertionError, TypeError, ValueError, LookupError, AttributeError) as error:
            kind = "" if isinstance(error, (RuntimeError, AssertionError)) else f"{type(error).__name__}: "
            raise self._misfit(f"{kind}{_reason(error)}") from error
        return logits_of(returned)

    def _misfit(self, reason: str) -> ClassifierError:
        """What to raise where the model failed on a batch: what it was handed, and what can be done about it."""
        channels = re.search(r"to have (\d+) channels, but got 3 channels", reason)
        if channels:
            return ClassifierError(
                f"expected a model of images with 3 channels, got one that takes {channels[1]}: wrap it in a module "
                "that makes its channels of red, green and blue"
            )
        if self.precision in ("bf16", "fp16") and re.search("dtype|scalar type|BFloat16|Half|Float Tensor", reason):
            return ClassifierError(
                f"expected a model that computes in {self.precision}, got {reason}: "
                "take precision='fp32', or give its constants the dtype of the images"
            )
        return ClassifierError(f"expected a model that takes {self.size[0]}×{self.size[1]} images, got {reason}")

    @property
    def cost(self) -> int:
        """Passes of the network that one vote takes: one for each view."""
        return len(self.views)

    @property
    def width(self) -> int:
        """How many numbers a pass gives: one for each class."""
        return self.classes

    def numbers(self, images: Tensor) -> Tensor:
        """What one pass gives, ``[n, width]``, of a batch that is already on the device: probabilities."""
        return self.probabilities(images)

    def summary(self, numbers: Tensor) -> Tensor:
        """Class probabilities ``[n, classes]`` from what passes gave."""
        return numbers

    def moved(self, _numbers: Tensor, _others: Tensor) -> float:
        """By how much sums of local evidence differ at most between two batches of passes; there is none here."""
        return 0.0

    def sums(self, numbers: Tensor) -> Tensor:
        """Signed sums of local evidence, ``[n, sums, classes]`` in float64; there are none here."""
        return numbers.new_empty(len(numbers), 0, self.classes, dtype=torch.float64)

    def strayed(self, _pictures: Tensor, _look: Callable[[Tensor], Tensor]) -> float:
        """By how much sums of local evidence move that boxes in pictures do not touch, as ``look`` gives numbers.

        An error where that is more than rounding. There is none here.
        """
        return 0.0

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of one batch that is already on the device, the mean over all views; not checked for NaN.

        What was painted over before is turned over with the rest; NaN in one view makes the mean NaN.
        """
        return reduce(torch.add, [self._softmax(turned(images, view)) for view in self.views]) / self.cost

    def _softmax(self, shown: Tensor) -> Tensor:
        return self._shaped_logits(shown).float().softmax(dim=1)

    def _shaped_logits(self, images: Tensor) -> Tensor:
        logits = self.logits(images)
        if logits.shape != (len(images), self.classes):
            raise ClassifierError(f"expected logits of shape {[len(images), self.classes]}, got {list(logits.shape)}")
        return logits

    @torch.inference_mode()
    def __call__(self, images: Tensor) -> Tensor:
        """Probabilities of any number of images."""
        images = checked_images(images, self.size).to(self.device)
        outputs = []
        for part in torch.split(images, self.batch):
            padded = torch.cat([part, part[-1:].expand(self.batch - len(part), -1, -1, -1)])
            outputs.append(self.probabilities(padded)[: len(part)])
        return self.checked(torch.cat(outputs)) if outputs else torch.empty(0, self.classes, device=self.device)

    def checked(self, probabilities: Tensor) -> Tensor:
        """The same probabilities; an error if the model gave NaN or infinity anywhere."""
        if not torch.isfinite(probabilities).all():
            raise self.no_numbers()
        return probabilities

    def no_memory(self) -> ClassifierError:
        """What to raise where not even one image fits."""
        return ClassifierError(f"expected memory for one image on {self.device}, got too little")

    def no_numbers(self) -> ClassifierError:
        """What to raise where the model gave NaN or infinity."""
        return ClassifierError(f"expected finite logits from {self.name}, got NaN or infinity")

    def __repr__(self) -> str:
        height, width = self.size
        function = f"{self.classes} classes, {height}×{width}, {self.precision}"
        views = "" if self.views == PLAIN else f", views {' + '.join(self.views)}"
        return f"Classifier({self.name}, {function} on {self.device}, batch {self.batch}{views})"

    def describe(self) -> dict[str, Any]:
        """What a results file records: the function that was certified."""
        return {
            "name": self.name,
            "weights_sha256": self.weights,
            "architecture_sha256": self.architecture,
            **({"files_sha256": self.files} if self.files else {}),
            "classes": self.classes,
            "size": list(self.size),
            "mean": list(self.mean),
            "std": list(self.std),
            "precision": self.precision,
            "batch": self.batch,
            "compiled": self.compiled,
            **({"compile_options": compile_options()} if self.compiled else {}),
            "backend": self.backend,
            "device": device_name(self.device),
            **({} if self.views == PLAIN else {"views": list(self.views)}),
        }


def _convertible(model: object) -> bool:
    """Whether a network may change its precision and be compiled; a ScriptModule's constants would stay behind."""
    return isinstance(model, nn.Module) and not isinstance(model, torch.jit.ScriptModule)


def _reason(error: BaseException) -> str:
    """An error in one line; TorchScript puts its own last."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    scripted = "TorchScript" in lines[0]
    return lines[-1].removeprefix("RuntimeError: ") if scripted else lines[0]
