"""Upper bounds on what sharing work between masks could save inside a network, without building it.

    python -m benchmarks.shared_work --out results/speed/shared-work.json

CNN: a masked pass differs from the unmasked one only where the masks reach. Per layer, the share of output positions
that differ times the layer's FLOPs is the least that must be recomputed. ViT: tokens that lie wholly under the masks
could be dropped (a different function); the share of tokens that stay bounds the saving.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.plain_loop import keep_table
from certmask.covers import Cover, patchcleanser_cover
from certmask.results.file import provenance
from certmask.threat import Patch
from certmask.zoo.timm_import import import_timm

PATCH = Patch(32, 32)
TOKEN = 16


def conv_costs(model: nn.Module, image: Tensor) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Output of every convolution on one image, and its multiply-adds."""
    outputs: dict[str, Tensor] = {}
    costs: dict[str, float] = {}

    def watch(name: str) -> Any:
        def hook(layer: nn.Module, _: Any, output: Tensor) -> None:
            assert isinstance(layer, nn.Conv2d)
            outputs[name] = output
            costs[name] = output.numel() * layer.weight[0].numel()

        return hook

    hooks = [m.register_forward_hook(watch(n)) for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    with torch.inference_mode():
        model(image)
    for hook in hooks:
        hook.remove()
    return dict(outputs), costs


def cnn_bound(name: str, cover: Cover, pairs: list[tuple[int, int]]) -> float:
    """Total FLOPs over those at positions that a pair of masks changes, averaged over pairs of masks."""
    torch.manual_seed(0)
    model = import_timm().create_model(name, pretrained=False).double().eval()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)  # an untrained residual branch may be zero and hide its reach
    image = torch.rand(1, 3, 224, 224, dtype=torch.float64)
    keep = keep_table(cover, torch.device("cpu"))
    clean, costs = conv_costs(model, image)
    needed = []
    for i, j in pairs:
        changed, _ = conv_costs(model, torch.where(keep[i] & keep[j], image, torch.zeros_like(image)))
        shares = {n: ((changed[n] - clean[n]).abs().amax(dim=1) > 0).double().mean().item() for n in clean}
        needed.append(sum(shares[n] * costs[n] for n in costs))
    return sum(costs.values()) / float(np.mean(needed))


def vit_bound(cover: Cover, pairs: list[tuple[int, int]]) -> float:
    """All tokens over those that no pair of masks hides completely, averaged over pairs of masks."""
    keep = keep_table(cover, torch.device("cpu"))
    stay = [nn.functional.max_pool2d((keep[i] & keep[j]).float()[None], TOKEN).mean().item() for i, j in pairs]
    return 1 / float(np.mean(stay))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for per_axis in (4, 6):
        cover = patchcleanser_cover(224, PATCH, per_axis)
        chosen = np.random.default_rng(0).integers(0, len(cover), (12, 2)).tolist()
        every = [(i, j) for i in range(len(cover)) for j in range(i, len(cover))]
        about = {"masks": len(cover), "mask": cover.mask[0]}
        rows.append({**about, "kind": "ViT, tokens of 16 px", "bound": vit_bound(cover, every)})
        for name in ("resnet50", "tf_efficientnet_lite0"):
            bound = cnn_bound(name, cover, [(int(i), int(j)) for i, j in chosen])
            rows.append({**about, "kind": name, "bound": bound})
        print(rows[-3:], flush=True)
    options.out.write_text(json.dumps({"versions": provenance(), "bounds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
