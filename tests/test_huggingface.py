"""Hugging Face folders as models: their preprocessing to the pixel, their logits, and nothing made up or run."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import certmask
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

import certmask as cm
from certmask.data import CIFAR10, Framing, read_photo, to_tensor
from certmask.errors import ClassifierError
from certmask.results.file import read_results
from certmask.zoo import card_of, framing_of, load_classifier, load_model
from certmask.zoo.timm_import import import_timm

import_timm()  # torchvision comes first
transformers: Any = import_module("transformers")

SIDE = 32
SMALL = {"num_labels": 5}
BLOCKS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
          "image_size": SIDE, "patch_size": 8}  # fmt: skip
STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1]}
SQUARE = {"height": SIDE, "width": SIDE}
NETWORKS: dict[str, Callable[[], Any]] = {
    "ViT": lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**BLOCKS, **SMALL)),
    "DeiT": lambda: transformers.DeiTForImageClassification(transformers.DeiTConfig(**BLOCKS, **SMALL)),
    "DeiT with a teacher": lambda: transformers.DeiTForImageClassificationWithTeacher(
        transformers.DeiTConfig(**BLOCKS, **SMALL)
    ),
    "ResNet": lambda: transformers.ResNetForImageClassification(
        transformers.ResNetConfig(embedding_size=8, layer_type="basic", **STAGES, **SMALL)
    ),
    "ConvNeXt": lambda: transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(num_stages=2, patch_size=4, **STAGES, **SMALL)
    ),
}
PROCESSORS: dict[str, tuple[dict[str, Any], Framing]] = {
    "ViT": ({"image_processor_type": "ViTImageProcessor", "size": SQUARE, "resample": 2},
            Framing(resampling="bilinear", resized=(SIDE, SIDE))),
    "old ViT": ({"feature_extractor_type": "ViTFeatureExtractor", "size": SIDE, "resample": 3},
                Framing(resampling="bicubic", resized=(SIDE, SIDE))),
    "fast": ({"image_processor_type": "ViTImageProcessorFast", "size": SQUARE, "resample": 1},
             Framing(resampling="lanczos", resized=(SIDE, SIDE))),
    "DeiT": ({"image_processor_type": "DeiTImageProcessor", "size": {"height": 40, "width": 36}, "resample": 3,
              "crop_size": SQUARE, "do_center_crop": True}, Framing(resized=(40, 36))),
    "CLIP": ({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 37}, "resample": 3,
              "crop_size": SQUARE, "do_center_crop": True}, Framing(resized=37)),
    "BiT": ({"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 41}, "resample": 0,
             "crop_size": SQUARE, "do_center_crop": True}, Framing(resampling="nearest", resized=41)),
    "ConvNeXt": ({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": SIDE}, "resample": 3,
                  "crop_pct": 0.875}, Framing(resized=36)),
    "PoolFormer": ({"image_processor_type": "PoolFormerImageProcessor", "size": {"shortest_edge": SIDE}, "resample": 3,
                    "crop_size": SQUARE, "crop_pct": 0.9}, Framing(resized=35)),
    "large ConvNeXt": ({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384},
                        "resample": 2, "crop_pct": 0.95}, Framing(resampling="bilinear", resized=(384, 384))),
    "no normalizing": ({"image_processor_type": "ViTImageProcessor", "size": SQUARE, "do_normalize": False},
                       Framing(resampling="bilinear", resized=(SIDE, SIDE))),
    "no rescaling": ({"image_processor_type": "ViTImageProcessor", "size": SQUARE, "do_rescale": False,
                      "image_mean": [123.7, 116.3, 103.5], "image_std": [58.0, 57.0, 57.5]},
                     Framing(resampling="bilinear", resized=(SIDE, SIDE))),
    "another factor": ({"image_processor_type": "ViTImageProcessor", "size": SQUARE, "rescale_factor": 1 / 127.5},
                       Framing(resampling="bilinear", resized=(SIDE, SIDE))),
}  # fmt: skip


def folder_of(folder: Path, network: Any = None, processor: dict[str, Any] | None = None, **config: Any) -> Path:
    """A model as ``save_pretrained`` writes it, with these settings of an image processor."""
    torch.manual_seed(0)
    made = network or NETWORKS["ViT"]()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.startswith(("classifier", "cls_classifier", "distillation")) and parameter.ndim == 2:
                parameter.normal_(0, 2)  # sure of itself, so that masks make it change its mind
    made.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor or PROCESSORS["ViT"][0]))
    changed(folder / "config.json", **config)
    return folder


def changed(path: Path, **fields: Any) -> None:
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, **fields}))


def theirs(folder: Path, photo: Image.Image) -> Tensor:
    """What transformers itself makes of a photo, by Pillow."""
    kind = {"backend": "pil"} if int(transformers.__version__.split(".")[0]) >= 5 else {"use_fast": False}
    processor = transformers.AutoImageProcessor.from_pretrained(folder, **kind)
    values: Tensor = processor(photo, return_tensors="pt")["pixel_values"]
    return values


@pytest.fixture(scope="module")
def some_photos(photos: dict[str, Path]) -> list[Image.Image]:
    """Real ones, wide and high, large and smaller than the input."""
    cat, cup = (read_photo(path) for path in photos.values())
    return [cat, cup, cat.rotate(90, expand=True), cup.resize((331, 67)), cat.resize((29, 53)), cup.resize((333, 500))]


@pytest.mark.parametrize("kind", PROCESSORS)
def test_their_preprocessing_is_followed_to_the_pixel(
    kind: str, tmp_path: Path, some_photos: list[Image.Image]
) -> None:
    """Every pixel is the same of 256 tones; what is left is rounding in float32."""
    processor, framing = PROCESSORS[kind]
    folder = folder_of(tmp_path, processor=processor)
    card = card_of(str(folder))
    assert framing_of(str(folder)) == framing
    mean, std = (torch.tensor(colour).view(3, 1, 1) for colour in (card.mean, card.std))
    for photo in some_photos:
        own, other = to_tensor(framing(photo, card.size)), theirs(folder, photo)[0]
        assert torch.equal((own * 255).round(), ((other * std + mean) * 255).round())
        torch.testing.assert_close((own - mean) / std, other, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("kind", NETWORKS)
def test_logits_are_those_of_transformers(kind: str, tmp_path: Path, some_photos: list[Image.Image]) -> None:
    processor, framing = PROCESSORS["ConvNeXt" if kind in ("ConvNeXt", "ResNet") else "ViT"]
    folder = folder_of(tmp_path, NETWORKS[kind](), processor)
    classifier = load_classifier(folder, precision="fp32", batch=4)
    network = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    for photo in some_photos[:3]:
        with torch.inference_mode():
            wanted = network(theirs(folder, photo)).logits
            found = classifier.logits(to_tensor(framing(photo, (SIDE, SIDE)))[None])
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert classifier.class_names == ("0", "1", "2", "3", "4")
    assert classifier.name == tmp_path.name
    assert classifier.grid == (8 if "iT" in kind else 1)


def as_folder(folder: Path) -> Path:
    """The shipped DeiT-Tiny as a Hugging Face folder, by hand: tensors under the names that the hub has for them."""
    model, card = load_model("deit_tiny-imagenette"), card_of("deit_tiny-imagenette")
    state, own = model.state_dict(), {}
    names = {"cls_token": "embeddings.cls_token", "pos_embed": "embeddings.position_embeddings",
             "patch_embed.proj": "embeddings.patch_embeddings.projection", "norm": "layernorm",
             "norm1": "layernorm_before", "norm2": "layernorm_after", "attn.proj": "attention.output.dense",
             "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense"}  # fmt: skip
    for name, tensor in state.items():
        part, dot, kind = name.rpartition(".") if name not in names else (name, "", "")
        if part == "head":
            own[f"classifier.{kind}"] = tensor
        elif part.startswith("blocks."):
            _, number, layer = part.split(".", 2)
            place = f"vit.encoder.layer.{number}"
            if layer == "attn.qkv":
                for which, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                    own[f"{place}.attention.attention.{which}.{kind}"] = third.clone()
            else:
                own[f"{place}.{names[layer]}.{kind}"] = tensor
        else:
            own[f"vit.{names[part]}{dot}{kind}"] = tensor
    save_file(own, folder / "model.safetensors", {"format": "pt"})
    config = {"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 192,
              "num_hidden_layers": 12, "num_attention_heads": 3, "intermediate_size": 768, "layer_norm_eps": 1e-6,
              "image_size": 224, "patch_size": 16, "id2label": dict(enumerate(card.classes))}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    processor = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}, "resample": 3,
                 "do_center_crop": True, "crop_size": {"height": 224, "width": 224}, "do_convert_rgb": False,
                 "image_mean": card.mean, "image_std": card.std}  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def test_the_shipped_model_as_a_folder_certifies_as_the_torch_model_does(
    tmp_path: Path, some_photos: list[Image.Image]
) -> None:
    """The same answers, the same certificates, and leads within a margin of 10⁻³."""
    folder, cover = as_folder(tmp_path), cm.zoom_cover(224, 32, levels=(2,), align=16)
    images = torch.stack([to_tensor(framing_of(str(folder))(photo, (224, 224))) for photo in some_photos[:2]])
    rule = cm.JuryRecovery(margin=1e-3)
    found: list[Any] = []
    for model in ("deit_tiny-imagenette", folder):
        shield = cm.Defence(model, cover, rule, precision="fp32", batch=4)
        assert shield.classifier.grid == 16
        answer = shield(images)
        proof = shield.certify(images, answer.labels)
        found.append((answer.labels.tolist(), [c.holds for c in proof.certificates], shield.classifier(images), proof))
    (labels, holds, votes, proof), (own_labels, own_holds, own_votes, own_proof) = found
    assert (own_labels, own_holds) == (labels, holds)
    assert set(holds) == {True, False}
    torch.testing.assert_close(own_votes, votes, atol=1e-4, rtol=0)
    for mine, theirs_ in zip(own_proof.rows, proof.rows, strict=True):
        mine, theirs_ = (row["defences"]["zoom"] for row in (mine, theirs_))
        assert mine["weakest"]["places"] == theirs_["weakest"]["places"]
        assert mine["weakest"]["lead"] == pytest.approx(theirs_["weakest"]["lead"], abs=1e-3)


@pytest.fixture
def classes() -> dict[str, Any]:
    return {"id2label": dict(enumerate(CIFAR10[:5]))}


def photos_of(folder: Path, classes: dict[str, Any]) -> Path:
    for number, name in enumerate(list(classes["id2label"].values())[:3]):
        (folder / name).mkdir(parents=True)
        noise = np.random.default_rng(number).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((60, 45)).save(folder / name / "one.png")
    return folder


def test_a_run_goes_on_with_the_same_folder_and_refuses_another(tmp_path: Path, classes: dict[str, Any]) -> None:
    folder, photos = folder_of(tmp_path / "mine", **classes), photos_of(tmp_path / "photos", classes)
    out = tmp_path / "run.jsonl"
    run = ("certify", photos, "--model", folder, "--precision", "fp32", "--batch", "8", "--out", out)
    certmask(*run)
    header, rows = read_results(out)
    assert len(rows) == 3
    assert header["model"]["name"] == "mine"
    assert len(header["model"]["files_sha256"]) == 64
    assert header["versions"]["transformers"] == transformers.__version__
    assert header["data"]["resized"] == [SIDE, SIDE]
    (folder / "README.md").write_text("not part of the model")
    assert "has 3 of 3 images already" in certmask(*run).stdout
    before = {name: (folder / name).read_bytes() for name in ("config.json", "preprocessor_config.json",
                                                              "model.safetensors")}  # fmt: skip
    state = load_file(folder / "model.safetensors")
    changes: list[Callable[[], None]] = [
        lambda: changed(folder / "config.json", hidden_act="relu"),
        lambda: changed(folder / "preprocessor_config.json", image_mean=[0.4, 0.5, 0.5]),
        lambda: save_file({k: 1.01 * v for k, v in state.items()}, folder / "model.safetensors", {"format": "pt"}),
    ]
    for change in changes:
        change()
        assert "expected to continue" in certmask(*run, code=1).stderr
        for name, content in before.items():
            (folder / name).write_bytes(content)
    assert "has 3 of 3 images already" in certmask(*run).stdout


def test_in_python_and_on_other_backends(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "vit")
    images = torch.rand(5, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    shield = cm.Defence(folder, 5, precision="fp32", batch=8)
    wanted = shield.classifier(images)
    for backend in ("openvino", "onnxruntime"):
        other = load_classifier(folder, precision="fp32", batch=8, backend=backend)
        torch.testing.assert_close(other(images), wanted, atol=1e-4, rtol=0)
    shield.save(tmp_path / "shield.safetensors")
    again = cm.Defence.load(tmp_path / "shield.safetensors", load_model(str(folder)))
    assert torch.equal(again(images).labels, shield(images).labels)
    run = cm.certify(folder, (images, wanted.argmax(dim=1)), "undefended", 5, precision="fp32", batch=8)
    target = cm.Target(run.path, (images, wanted.argmax(dim=1)), tmp_path / "attack.jsonl", str(folder))
    attempts = target.gauntlet(cm.Budget(images=1, locations=1, steps=2)).attack()
    assert len(attempts.rows) == 1
    same = cm.Classifier(load_model(str(folder)), SIDE, mean=(0.5,) * 3, std=(0.5,) * 3, precision="fp32", batch=8)
    assert same.weights == shield.classifier.weights
    assert torch.equal(same(images), wanted)


def test_a_name_of_timm_is_not_a_folder_by_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(tmp_path / "resnet18")
    monkeypatch.chdir(tmp_path)
    assert len(card_of("resnet18").classes) == 1000
    assert len(card_of("./resnet18").classes) == 5
    assert load_classifier("./resnet18", batch=2).name == "resnet18"


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (
            {"id2label": {"0": "cat", "1": "dog", "2": "emu", "3": "fox", "4": "gnu"}},
            ("cat", "dog", "emu", "fox", "gnu"),
        ),
        ({"id2label": {str(n): f"LABEL_{n}" for n in range(5)}}, ("0", "1", "2", "3", "4")),
    ],
)
def test_names_of_classes(config: dict[str, Any], names: tuple[str, ...], tmp_path: Path) -> None:
    assert load_classifier(folder_of(tmp_path, **config), batch=2).class_names == names


def test_weights_in_several_files(tmp_path: Path) -> None:
    whole, parts = folder_of(tmp_path / "whole"), folder_of(tmp_path / "parts")
    transformers.AutoModelForImageClassification.from_pretrained(whole).save_pretrained(parts, max_shard_size="20KB")
    (parts / "model.safetensors").unlink()
    shards = sorted(parts.glob("model-*.safetensors"))
    assert len(shards) > 1
    classifier = load_classifier(parts, batch=2)
    assert classifier.weights == load_classifier(whole, batch=2).weights
    shards[0].unlink()
    with pytest.raises(ClassifierError, match=f"got nothing at .*{shards[0].name}"):
        load_classifier(parts)


def test_half_weights_are_widened(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    state = {key: value.half() for key, value in load_file(folder / "model.safetensors").items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    changed(folder / "config.json", dtype="float16")
    network = load_model(str(folder))
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert load_classifier(folder, precision="fp32", batch=2).classes == 5


def test_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody looked at the network")

    folder = folder_of(tmp_path)
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    load_classifier(folder, batch=2)
    with pytest.raises(ClassifierError, match=r"expected .* got 'google/vit-base-patch16-224'"):
        load_classifier("google/vit-base-patch16-224")


def _put(path: Path, told: Any) -> None:
    path.write_text(json.dumps(told))


def _kept_elsewhere(folder: Path) -> None:
    """timm's wrapper, which reads a pickle from any place."""
    torch.save({"state_dict": {}}, folder.parent / "weights.pth")
    path = str(folder.parent / "weights.pth")
    changed(folder / "config.json", model_type="timm_wrapper", architecture="resnet18",
            model_args={"checkpoint_path": path})  # fmt: skip


KERNELS = "kernels-community/flash-attn"
ABROAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "a hub": (lambda f: changed(f / "config.json", model_type="timm_wrapper", architecture="hf-hub:some/model"),
              "expected a model_type of transformers in .*, got 'timm_wrapper': save the network of timm"),
    "another folder": (lambda f: changed(f / "config.json", model_type="timm_wrapper", architecture="local-dir:/tmp"),
                       "got 'timm_wrapper'"),
    "a pickle elsewhere": (_kept_elsewhere, "got 'timm_wrapper'"),
    "a part of it": (lambda f: changed(f / "config.json", backbone_config=[{"model_type": "timm_backbone"}]),
                     "expected a model of plain layers and weights in .*, got model_type \"timm_backbone\""),
    "kernels": (lambda f: changed(f / "config.json", _attn_implementation=KERNELS), "got _attn_implementation"),
    "kernels by name": (lambda f: changed(f / "config.json", attn_implementation=KERNELS), "got attn_implementation"),
    "kernels of a part": (lambda f: changed(f / "config.json", vision_config={"attn_implementation": {"": KERNELS}}),
                          "got attn_implementation"),
    "quantized": (lambda f: changed(f / "config.json", quantization_config={"quant_method": "torchao"}),
                  "got quantization_config"),
    "another configuration": (lambda f: changed(f / "config.json", configuration_files=["config.4.0.0.json"]),
                              "got configuration_files"),
    "an adapter": (lambda f: _put(f / "adapter_config.json", {"peft_type": "LORA"}),
                   "expected whole weights in .*, got an adapter to others"),
    "a processor that asks": (lambda f: changed(f / "preprocessor_config.json", repo_path="some/data",
                                                image_processor_type="OneFormerImageProcessor",
                                                class_info_file="classes.json"), "expected an image processor in"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), ABROAD.values(), ids=ABROAD)
def test_nothing_outside_is_asked_for_whatever_a_folder_says(
    change: Callable[[Path], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_of(tmp_path / "mine")
    change(folder)
    asked = _watched(monkeypatch)
    with pytest.raises(ClassifierError, match=message) as error:
        load_classifier(folder, batch=2)
    assert asked == []
    assert "\n" not in str(error.value)


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The hosts that are asked for; none is found."""
    asked: list[Any] = []

    def look(*host: Any, **_: Any) -> None:
        asked.append(host)
        raise OSError("no such host")

    monkeypatch.setattr(socket, "getaddrinfo", look)
    return asked


def test_the_hub_is_off_while_a_folder_is_read_and_on_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a processor that would ask for something by itself gets no answer, at once; an error changes nothing."""
    asked, hub = _watched(monkeypatch), import_module("huggingface_hub")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    found = []

    def curious(*_: Any, **__: Any) -> None:
        found.append(hub.is_offline_mode())
        hub.hf_hub_download("some/model", "config.json")

    monkeypatch.setattr(transformers.AutoImageProcessor, "from_pretrained", curious)
    with pytest.raises(ClassifierError, match=r"expected an image processor in .*, got"):
        load_classifier(folder_of(tmp_path), batch=2)
    assert found == [True]
    assert asked == []
    assert not hub.is_offline_mode()
    assert "HF_HUB_OFFLINE" not in os.environ


def test_a_processor_beside_the_processor_is_refused(tmp_path: Path) -> None:
    """transformers takes it in place of the one that is hashed; settings for texts alone do not matter."""
    folder = folder_of(tmp_path)
    before = card_of(str(folder))
    joint = folder / "processor_config.json"
    joint.write_text(json.dumps({"processor_class": "CLIPProcessor"}))
    assert card_of(str(folder)) == before
    joint.write_text(json.dumps({"image_processor": {**PROCESSORS["ViT"][0], "image_mean": [0.1, 0.2, 0.3]}}))
    for read in (card_of, framing_of, load_classifier):
        with pytest.raises(
            ClassifierError, match=r"in preprocessor_config.json alone, got another one in .*processor_"
        ):
            read(str(folder))


@pytest.mark.parametrize("name", ["../elsewhere/a.safetensors", "parts/a.safetensors", "/tmp/a.safetensors", "..",
                                  "..\\a.safetensors", "a.bin"])  # fmt: skip
def test_weights_lie_in_the_folder_itself(name: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "mine")
    state = load_file(folder / "model.safetensors")
    for place in (folder, folder / "parts", tmp_path / "elsewhere"):
        place.mkdir(exist_ok=True)
        save_file(state, place / "a.safetensors", {"format": "pt"})
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(state, name)})
    )
    with pytest.raises(ClassifierError, match=r"expected names of safetensors files beside .*, got"):
        load_classifier(folder, batch=2)
    with pytest.raises(ClassifierError, match=r"expected names of safetensors files beside .*, got"):
        load_model(str(folder))


@pytest.mark.parametrize("file", ["config.json", "preprocessor_config.json"])
def test_code_in_a_folder_is_never_run(file: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "evil")
    code = f"open({str(tmp_path / 'ran')!r}, 'w').write('ran')\nclass Mine:\n    pass\n"
    (folder / "mine.py").write_text(code)
    auto = {
        "AutoModelForImageClassification": "mine.Mine",
        "AutoConfig": "mine.Mine",
        "AutoImageProcessor": "mine.Mine",
    }
    changed(folder / file, auto_map=auto)
    with pytest.raises(ClassifierError, match="expected a model whose code is that of transformers"):
        load_classifier(folder)
    with pytest.raises(ClassifierError, match="auto_map" if file == "config.json" else "expected"):
        load_model(str(folder))
    assert not (tmp_path / "ran").exists()


NOT_FOLLOWED: dict[str, tuple[dict[str, Any], str]] = {
    "no resizing": ({"do_resize": False}, "got do_resize false"),
    "no cut": ({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 40}, "do_center_crop": False},
               "got photos that keep their proportions and are not cut"),
    "a border": ({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 30}, "do_center_crop": True,
                  "crop_size": SQUARE}, "got expected photos resized to at least 32×32"),
    "box": ({"resample": 4}, "got resampling by box"),
    "longest edge": ({"size": {"longest_edge": 32}}, "expected an image processor"),
    "colours turned": ({"image_processor_type": "MobileViTImageProcessor", "size": {"shortest_edge": 36},
                        "crop_size": SQUARE, "do_flip_channel_order": True}, "got a colour that differs by"),
    "an offset": ({"image_processor_type": "EfficientNetImageProcessor", "rescale_factor": 1 / 127.5,
                   "rescale_offset": True}, "got a colour that differs by"),
    "its own size": ({"image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 32},
                      "crop_size": SQUARE, "do_center_crop": True}, "cannot be followed exactly"),
    "no std": ({"image_std": [0.0, 1.0, 1.0]}, "got a colour that differs by nan"),
    "unknown": ({"image_processor_type": "MagicImageProcessor"}, "expected an image processor in"),
    "two edges": ({"image_processor_type": "CLIPImageProcessor", "do_center_crop": True, "crop_size": SQUARE,
                   "size": {"shortest_edge": 36, "longest_edge": 80}}, "got size by longest_edge, shortest_edge"),
    "vast": ({"size": {"height": 10**9, "width": 10**9}}, "got size of more than 4096 pixels"),
    "half a pixel": ({"size": {"height": 32.5, "width": 32}}, "expected an image processor in"),
}  # fmt: skip


@pytest.mark.parametrize(("processor", "message"), NOT_FOLLOWED.values(), ids=NOT_FOLLOWED)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_what_cannot_be_followed_is_refused(processor: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, processor={**PROCESSORS["ViT"][0], **processor})
    with pytest.raises(ClassifierError, match=message) as error:
        load_classifier(folder, batch=2)
    assert "\n" not in str(error.value)


def _without(folder: Path, name: str) -> None:
    (folder / name).unlink()


def _less(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors", {"format": "pt"})


def _pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    _without(folder, "model.safetensors")


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no processor": (lambda f: _without(f, "preprocessor_config.json"), "expected preprocessor_config.json in"),
    "no weights": (lambda f: _without(f, "model.safetensors"), "expected weights in safetensors in .* got nothing at"),
    "a pickle": (_pickled, "expected weights in safetensors in .* got nothing at"),
    "cut weights": (lambda f: _cut(f / "model.safetensors"), "expected an image classifier in .*, got"),
    "no JSON": (lambda f: _cut(f / "config.json"), "expected JSON in"),
    "a list": (lambda f: _listed(f / "config.json"), "expected a JSON object in"),
    "no head": (lambda f: _less(f, lambda s: s.__delitem__("classifier.weight")),
                r"expected all weights of ViTForImageClassification in .*, got 1 missing \(the first is classifier"),
    "other head": (lambda f: changed(f / "config.json", id2label={str(n): str(n) for n in range(7)}),
                   "expected .*(mismatched|size mismatch|classifier)"),
    "a gap": (lambda f: changed(f / "config.json", id2label={"0": "a", "2": "b"}), "expected id2label for classes 0,"),
    "text": (lambda f: changed(f / "config.json", model_type="bert"), "expected an image classifier in"),
    "unknown": (lambda f: changed(f / "config.json", model_type="magic"), "expected an image classifier in"),
    "other size": (lambda f: changed(f / "preprocessor_config.json", size={"height": 40, "width": 40}),
                   "expected a model that takes 40×40 images, got"),
    "deep": (lambda f: _deep(f / "config.json"), "expected JSON in .*, got"),
    "namesakes": (lambda f: changed(f / "config.json", id2label=dict(enumerate("abcab"))), "two classes called 'a'"),
    "names in a list": (lambda f: changed(f / "config.json", id2label=["a", "b"]), "expected id2label for classes 0,"),
    "classes in words": (lambda f: changed(f / "config.json", id2label=None, num_labels="x"),
                         "expected num_labels of 2 to .*, got 'x'"),
    "classes in a list": (lambda f: changed(f / "config.json", id2label=None, num_labels=[3]),
                          r"expected num_labels of 2 to .*, got \[3\]"),
    "a number of layers": (lambda f: changed(f / "config.json", architectures=5), "expected architectures as names in"),
    "layers in a word": (lambda f: changed(f / "config.json", architectures="ViT"), "expected architectures as names"),
    "two kinds": (lambda f: changed(f / "config.json", model_type=["vit"]), "expected a model_type of transformers in"),
}  # fmt: skip


def _listed(path: Path) -> None:
    path.write_text("[]")


def _deep(path: Path) -> None:
    path.write_text('{"model_type": "vit", "more": ' + "[" * 100_000)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_a_folder_that_is_not_whole_is_refused(change: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    change(folder)
    with pytest.raises(ClassifierError, match=message) as error:
        load_classifier(folder, batch=2)
    assert "\n" not in str(error.value)
    assert certmask("predict", folder / "config.json", "--model", folder, code=1).stdout == ""


def test_tensors_that_nothing_uses_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They change nothing: every layer has weights of its own."""
    folder = folder_of(tmp_path)
    before = load_classifier(folder, batch=2).weights
    _less(folder, lambda state: state.update(extra=torch.zeros(3)))
    with caplog.at_level(logging.WARNING):
        assert load_classifier(folder, batch=2).weights == before
    assert "has 1 tensors that ViTForImageClassification does not use: extra" in caplog.text


def test_other_folders(tmp_path: Path) -> None:
    with pytest.raises(
        ClassifierError, match=r"expected a Hugging Face folder, with a config.json, got .* without one"
    ):
        load_classifier(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet18", "pretrained_cfg": {}}))
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ClassifierError, match=r"got none: take --model resnet18 --weights .*model.safetensors"):
        load_classifier(tmp_path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        ClassifierError, match=r"the package transformers, got none: pip install 'certmask\[huggingface"
    ):
        load_classifier(folder)


def test_models_lists_them(tmp_path: Path) -> None:
    folder_of(tmp_path / "mine")
    shutil.copytree(tmp_path / "mine", tmp_path / "broken")
    _without(tmp_path / "broken", "preprocessor_config.json")
    told = certmask("models", tmp_path).stdout
    assert f"{tmp_path / 'mine'}\n  5 classes, input 32×32, mean 0.5 0.5 0.5, std 0.5 0.5 0.5" in told
    assert "left out: expected preprocessor_config.json in" in told
    assert "model.safetensors" not in told.replace("--weights FILE", "")
