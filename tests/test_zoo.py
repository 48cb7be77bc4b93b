"""Models by name and from local files."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import certmask
from conftest import tiny_network
from safetensors.torch import save_file
from torch import nn

from certmask.data import Framing, load_dataset
from certmask.errors import ClassifierError
from certmask.zoo import (
    Card,
    build_model,
    framing_of,
    imagenet_names,
    imagenet_synsets,
    is_known,
    load_classifier,
    save_model,
    shipped_models,
)
from certmask.zoo.checkpoint import load_weights, read_state_dict
from certmask.zoo.classes import readable_names
from certmask.zoo.timm_import import import_timm


def test_the_embedded_model_knows_the_demo_photos() -> None:
    """Real weights, real photos: most of the 20 photos are classified rightly, and cats are called cats."""
    classifier = load_classifier(batch=4)
    dataset = load_dataset("demo", [], 0.875)
    labels = classifier(torch.stack(list(dataset.tensors(classifier.size)))).argmax(dim=1).tolist()
    assert sum(label == s.label for label, s in zip(labels, dataset.samples, strict=True)) >= 15
    assert classifier.class_names[285] == "Egyptian cat"
    assert len(classifier.weights) == 64


def test_imagenet_names_and_synsets_are_in_the_models_order() -> None:
    assert imagenet_synsets()[0] == "n01440764"
    assert imagenet_names()[0] == "tench"
    assert imagenet_synsets() == sorted(imagenet_synsets())


@pytest.mark.parametrize(("name", "framing"), [
    ("vit_base_patch16_224", Framing(0.9)),
    ("resnet18.tv_in1k", Framing(0.875, "bilinear")),
    ("convnext_base.fb_in22k_ft_in1k_384", Framing(1.0, "bicubic", squash=True)),
    ("efficientnet-lite0", Framing(0.875)),
    ("deit_tiny-imagenette", Framing(1.0)),
])  # fmt: skip
def test_photos_are_framed_as_the_model_was_trained(name: str, framing: Framing) -> None:
    assert framing_of(name) == framing


def test_every_model_of_timm_is_framed_or_refused() -> None:
    timm = import_timm()
    configs = {name: timm.get_pretrained_cfg(name) for name in timm.list_models(pretrained=True)}
    bordered = [name for name, config in configs.items() if config.crop_mode == "border" or config.crop_pct > 1]
    assert 0 < len(bordered) < 20
    for name, config in configs.items():
        if name not in bordered:
            assert framing_of(name).crop == config.crop_pct
    for name in bordered:
        with pytest.raises(ClassifierError, match="expected a model without a border"):
            framing_of(name)


@pytest.fixture(scope="module")
def small() -> nn.Module:
    model: nn.Module = import_timm().create_model("resnet10t", pretrained=False)
    return model


@pytest.mark.parametrize("kind", ["safetensors", "half", "pth", "wrapped"])
def test_local_checkpoints(kind: str, small: nn.Module, tmp_path: Path) -> None:
    state = {
        name: t.half() if kind == "half" and t.is_floating_point() else t for name, t in small.state_dict().items()
    }
    path = tmp_path / ("w.pth" if kind in ("pth", "wrapped") else "w.safetensors")
    if path.suffix == ".pth":
        torch.save({"state_dict": state} if kind == "wrapped" else state, path)
    else:
        save_file(state, path)
    classifier = load_classifier("resnet10t", path, batch=2)
    assert classifier.classes == 1000
    if kind != "half":
        image = torch.rand(2, 3, *classifier.size)
        own = (image - torch.tensor(classifier.mean).view(1, 3, 1, 1)) / torch.tensor(classifier.std).view(1, 3, 1, 1)
        torch.testing.assert_close(classifier(image), small.eval()(own).softmax(dim=1))


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.write_text, (Path("evil"), "ran"))


def test_bad_weights_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each, and no code in a pickle is run."""
    monkeypatch.chdir(tmp_path)
    save_file({"a": torch.zeros(2)}, tmp_path / "other.safetensors")
    whole = (tmp_path / "other.safetensors").read_bytes()
    files: dict[str, bytes] = {
        "cut.safetensors": whole[:-3],
        "text.safetensors": b"hello",
        "text.pth": b"hello",
        "empty.pth": b"",
        "evil.pth": pickle.dumps({"w": Evil()}),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save({"w": Evil()}, tmp_path / "evil2.pth")
    for name in [*files, "list.pth", "evil2.pth", "absent.pth"]:
        with pytest.raises(ClassifierError, match=r"expected .*got") as error:
            read_state_dict(tmp_path / name)
        assert name in str(error.value)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "evil").exists()
    with pytest.raises(ClassifierError, match=r"expected weights of resnet10t .*missing"):
        load_classifier("resnet10t", tmp_path / "other.safetensors")


def test_weights_of_another_shape_or_with_extra_tensors() -> None:
    network = tiny_network(classes=5)
    with pytest.raises(ClassifierError, match="of another shape"):
        load_weights(network, tiny_network(classes=6).state_dict(), "tiny", "file")
    with pytest.raises(ClassifierError, match="1 tensors unknown"):
        load_weights(network, {**network.state_dict(), "extra": torch.zeros(1)}, "tiny", "file")


def test_an_unknown_name() -> None:
    for name in ("no_such_model", "resnet18.no_such_tag", "resnet18.", "hf-hub:timm/resnet18.a1_in1k", ""):
        with pytest.raises(ClassifierError, match=f"got '{name}'$"):
            load_classifier(name)
        assert not is_known(name)


def test_known_names() -> None:
    names = import_timm().list_models() + import_timm().list_models(pretrained=True)
    assert len(names) > 1000
    for name in [*names, "resnet50_v1", "resnet26w2_cifar", "efficientnet-lite0", *shipped_models()]:
        assert is_known(name), name


def test_a_download_that_fails_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """timm's own download is asked for; when it fails, the reason is passed on."""
    timm = import_timm()

    def offline(name: str, pretrained: bool) -> nn.Module:
        assert pretrained
        raise OSError("no connection\nmore text")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(ClassifierError, match=r"expected to get .* of resnet10t .*got no connection; .*--weights FILE"):
        load_classifier("resnet10t")


OFFLINE = "import time; time.sleep = lambda seconds: None; from certmask.cli import main; main()"


def test_a_download_without_a_network_says_one_line(photos: dict[str, Path], tmp_path: Path) -> None:
    """The hub's real retries against a closed port, without their pauses: what is waited for, then the way out."""
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment.update(HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=str(tmp_path), HF_HUB_OFFLINE="0")
    environment.pop("HF_HUB_VERBOSITY", None)
    command = [sys.executable, "-c", OFFLINE, "predict", str(photos["cat"]), "--model", "resnet18"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    wait, error = done.stderr.splitlines()
    assert wait.startswith("note: getting pretrained weights of resnet18 through timm; a bad connection is tried for")
    assert error.startswith("error: expected to get pretrained weights of resnet18 through timm, got ")
    assert "--weights FILE" in error
    assert "HF_HUB_OFFLINE=1" in error
    assert done.stdout == ""


@pytest.mark.parametrize(("level", "heard"), [("WARNING", ["fault"]), ("INFO", ["retry", "fault"])])
def test_the_hub_is_quiet_only_while_loading(
    level: str, heard: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its errors are heard, its other words if it was set to tell more; afterwards its level is what it was."""
    hub = logging.getLogger("huggingface_hub.utils._http")

    def create(name: str, pretrained: bool) -> nn.Module:
        hub.warning("retry")
        hub.error("fault")
        raise OSError("no connection")

    monkeypatch.setattr(import_timm(), "create_model", create)
    with caplog.at_level(level, logger="huggingface_hub"):
        with pytest.raises(ClassifierError):
            load_classifier("resnet10t")
        assert [record.message for record in caplog.records if record.name == hub.name] == heard
        hub.warning("afterwards")
        assert caplog.messages[-1] == "afterwards"


def test_the_models_of_a_folder_are_listed_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that was named must hold a checkpoint; the default one need not be there."""
    monkeypatch.chdir(tmp_path)
    alone = certmask("models").stdout
    (tmp_path / "cards").mkdir()
    for file in ("README.md", "cards/model.json"):
        (tmp_path / file).write_text("{}")
    for path, got in (
        ("nowhere", "got nothing at nowhere"),
        ("models", "got nothing at models"),
        ("README.md", "got the file README.md"),
        ("cards", "in cards, got none"),
    ):
        done = certmask("models", path, code=1)
        assert got in done.stderr
        assert done.stdout == ""
    card = Card("resnet10t", ("cat", "dog"), (64, 64), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 1.0)
    save_model(build_model("resnet10t", 2, (64, 64)), card, tmp_path / "models" / "pets" / "model.safetensors")
    assert "models/pets/model.safetensors\n  2 classes, input 64×64" in certmask("models", "models").stdout
    assert certmask("models").stdout == certmask("models", "models").stdout != alone
    (tmp_path / "models" / "pets" / "model.json").unlink()
    assert "left out: expected a card beside models/pets/model.safetensors" in certmask("models").stdout


def test_resnet50_v1_strides_in_the_first_convolution() -> None:
    """Same tensors as timm's resnet50, so its weights load; another function."""
    timm = import_timm()
    ours, theirs = timm.create_model("resnet50_v1").eval(), timm.create_model("resnet50").eval()
    assert {k: v.shape for k, v in ours.state_dict().items()} == {k: v.shape for k, v in theirs.state_dict().items()}
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.1)
    ours.load_state_dict(theirs.state_dict())
    images = torch.rand(1, 3, 64, 64)
    assert ours(images).shape == (1, 1000)
    assert not torch.allclose(ours(images), theirs(images))
    with pytest.raises(ClassifierError, match="no weights to download"):
        load_classifier("resnet50_v1")


def test_the_cifar_resnet_has_the_layers_of_its_name() -> None:
    model = build_model("resnet26w2_cifar", 10, (32, 32))
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 26
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def test_wordnet_ids_are_shown_in_english() -> None:
    assert readable_names(["n01440764", "n03417042"]) == ("tench", "garbage truck")
    assert readable_names(["n1", "cat"]) == ("n1", "cat")
    assert readable_names(["n99999999"]) == ("n99999999",)
