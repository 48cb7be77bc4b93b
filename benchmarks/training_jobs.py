"""What benchmarks/train_models.py trains: networks of the docs, steps towards a recipe, rows of the paper's tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

Options = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One model: on which photos, from which start, with which recipe; how it is examined.

    ``after`` names the job whose network it goes on with, ``teachers`` those whose networks teach it. A job for
    ``choosing`` is examined on photos that no figure is reported for.
    """

    data: str
    model: str
    recipe: Options
    weights: str | None = None
    after: str | None = None
    images: int = 1000
    compiled: bool = False
    crop: float = 1.0
    choosing: bool = False
    precision: str | None = None
    patch: int | None = None
    teachers: tuple[str, ...] = ()


DEIT_TINY, RESNET_50, LEVELS = "deit_tiny_patch16_224", "resnet50_v1", (2, 3, 6, 12)
DEIT = {"rate": 0.001}
RESNET = {"rate": 0.01}
SCRATCH = {"epochs": 20, "batch": 128, "schedule": "cosine", "warm_up": 3.0, "zoom": 0.5, "smoothing": 0.1}
SCRATCH_SGD = {**SCRATCH, "rate": 0.1, "weight_decay": 5e-4}
SCRATCH_ADAM = {**SCRATCH, "rate": 0.001, "weight_decay": 0.05, "optimizer": "adamw"}
CIFAR = {"epochs": 50, "batch": 512, "rate": 0.3, "schedule": "cosine", "warm_up": 5.0, "shift": 4,
         "weight_decay": 5e-4}  # fmt: skip
CIFAR_TUNE = {**CIFAR, "epochs": 8, "rate": 0.05, "warm_up": 0.0}
CIFAR_DEIT = {"rate": 0.003, "epochs": 4, "decay_every": 3, "batch": 128}

FIRST_NETWORKS = {
    "deit-none": Job("imagenette", DEIT_TINY, {**DEIT, "cutout": "none"}, DEIT_TINY),
    "deit-random": Job("imagenette", DEIT_TINY, {**DEIT, "cutout": "random"}, DEIT_TINY),
    "deit-greedy": Job("imagenette", DEIT_TINY, {**DEIT, "cutout": "greedy"}, DEIT_TINY),
    "resnet50-none": Job("imagenette", RESNET_50, {**RESNET, "cutout": "none"}, RESNET_50, images=500),
    "resnet50-random": Job("imagenette", RESNET_50, {**RESNET, "cutout": "random"}, RESNET_50, images=500),
    "resnet50-greedy": Job("imagenette", RESNET_50, {**RESNET, "cutout": "greedy"}, RESNET_50, images=500),
    "resnetv2-random": Job("imagenette", "resnetv2_50", SCRATCH_SGD, images=500, compiled=True),
    "resmlp-random": Job("imagenette", "resmlp_24_224", SCRATCH_ADAM, images=500, compiled=True),
    "cifar-resnet-none": Job("cifar", "resnet26w2_cifar", {**CIFAR, "cutout": "none"}, images=2000, compiled=True),
    "cifar-resnet-random": Job("cifar", "resnet26w2_cifar", {**CIFAR, "cutout": "random"}, images=2000, compiled=True),
    "cifar-resnet-greedy": Job("cifar", "resnet26w2_cifar", {**CIFAR_TUNE, "cutout": "greedy"},
                               after="cifar-resnet-random", images=2000, compiled=True),
    "cifar-deit-none": Job("cifar", DEIT_TINY, {**CIFAR_DEIT, "cutout": "none"}, DEIT_TINY),
    "cifar-deit-random": Job("cifar", DEIT_TINY, {**CIFAR_DEIT, "cutout": "random"}, DEIT_TINY),
}  # fmt: skip
"""Cutout as published, random and greedy, or none."""

AVERAGED = {"optimizer": "adamw", "rate": 1e-4, "weight_decay": 0.05, "schedule": "cosine", "warm_up": 1.0,
            "batch": 128, "average": 0.996}  # fmt: skip
PAIRED = {**AVERAGED, "cutout": "pairs", "patch": 32}
ALL_LEVELS = {**PAIRED, "levels": LEVELS}
VIEWS = {**ALL_LEVELS, "views": 2, "whole": True}
STRONG = {"zoom": 0.6, "colour": 0.3}

STEPS: dict[str, Options] = {
    "greedy": {**AVERAGED, "cutout": "greedy", "epochs": 5},
    "random": {**AVERAGED, "cutout": "random", "epochs": 35},
    "pairs-6": {**PAIRED, "epochs": 35},
    "pairs": {**ALL_LEVELS, "epochs": 35},
    "pairs-fill": {**ALL_LEVELS, "epochs": 35, "fill": "random"},
    "pairs-strong": {**ALL_LEVELS, **STRONG, "epochs": 35},
    "recall": {**ALL_LEVELS, "epochs": 35, "recall": 1.0},
    "worst": {**ALL_LEVELS, "epochs": 15, "tries": 4},
    "views": {**VIEWS, "epochs": 12},
    "agreement": {**VIEWS, "agreement": 0.5, "epochs": 10},
    "strong": {**VIEWS, **STRONG, "agreement": 0.5, "epochs": 10},
    "greedy-strong": {**AVERAGED, **STRONG, "cutout": "greedy", "epochs": 10},
    "worst-strong": {**PAIRED, **STRONG, "levels": (2, 3), "tries": 6, "epochs": 23},
    "worst-smooth": {**ALL_LEVELS, **STRONG, "tries": 6, "rate": 5e-5, "smoothing": 0.1, "epochs": 23},
}
"""Imagenette, DeiT-Tiny: some 105 passes for every photo, some 210 for the last three."""

KEPT_WORST = {**ALL_LEVELS, **STRONG, "tries": 6, "rate": 3e-5, "epochs": 23}
KEPT_TURNS = {**KEPT_WORST, "one_cover": True}
KEPT: dict[str, Options] = {
    "kept-greedy": {**AVERAGED, **STRONG, "cutout": "greedy", "rate": 3e-5, "epochs": 10},
    "kept-worst": KEPT_WORST,
    "kept-worst-fast": {**KEPT_WORST, "rate": 1e-4},
    "kept-recalled": {**KEPT_WORST, "recall": 1.0},
    "kept-turns": KEPT_TURNS,
    "kept-turns-sgd": {**KEPT_TURNS, "optimizer": "sgd", "rate": 0.001, "weight_decay": 0.0},
    "kept-long": {**KEPT_WORST, "zoom": 0.4, "colour": 0.4, "rate": 5e-5, "epochs": 30},
    "kept-taught": {**KEPT_WORST, "taught": 0.5},
}
"""The same again, some 210 passes, with what ImageNet's last layer knows of the classes, at lower rates."""

KEPT |= {f"{name}-again": {**KEPT[name], "seed": 1} for name in ("kept-greedy", "kept-worst")}

SMALL = {**CIFAR, "epochs": 40, "warm_up": 4.0}
SMALL_PAIRS = {**SMALL, "cutout": "pairs", "patch": 5, "levels": LEVELS}
SMALL_AVERAGED = {**SMALL_PAIRS, "average": 0.997}
SMALL_SEARCH = {**SMALL_AVERAGED, "levels": (2, 3), "rate": 0.08, "warm_up": 0.0}
CIFAR_STEPS: dict[str, Options] = {
    "random": {**SMALL, "cutout": "random"},
    "random-first": {**SMALL, "cutout": "random", "epochs": 19},
    "greedy": {**CIFAR_TUNE, "epochs": 3, "cutout": "greedy"},
    "pairs-6": {**SMALL_PAIRS, "levels": ()},
    "pairs": SMALL_PAIRS,
    "average": SMALL_AVERAGED,
    "recall": {**SMALL_AVERAGED, "recall": 1.0},
    "whole": {**SMALL_AVERAGED, "whole": True, "epochs": 20},
    "agreement": {**SMALL_AVERAGED, "whole": True, "agreement": 0.5, "epochs": 17},
}
"""CIFAR-10 at 32×32: some 120 passes for every photo; greedy goes on from a shorter random Cutout."""

FROM_RANDOM: dict[str, Options] = {
    "greedy": {**SMALL_SEARCH, "cutout": "greedy", "patch": None, "levels": (), "epochs": 3},
    "random": {**SMALL_SEARCH, "cutout": "random", "patch": None, "levels": (), "epochs": 21},
    "pairs": {**SMALL_SEARCH, "epochs": 21},
    "worst": {**SMALL_SEARCH, "tries": 4, "epochs": 9},
    "worst-10": {**SMALL_SEARCH, "tries": 10, "epochs": 5},
    "turns": {**SMALL_SEARCH, "tries": 4, "one_cover": True, "epochs": 9},
}
"""CIFAR-10 at 32×32, all on from the same random Cutout of 19 epochs, with some 63 passes more for every photo."""

FROM_RANDOM |= {f"{name}-again": {**recipe, "seed": 1} for name, recipe in FROM_RANDOM.items()}

CHOOSING = {
    **{f"choose-{name}": Job("imagenette", DEIT_TINY, recipe, DEIT_TINY, choosing=True, images=800, compiled=True)
       for name, recipe in {**STEPS, **KEPT}.items()},
    **{f"choose-cifar-{name}": Job("cifar", "resnet26w2_cifar", recipe, choosing=True, compiled=True,
                                   after="choose-cifar-random-first" if name == "greedy" else None)
       for name, recipe in CIFAR_STEPS.items()},
    **{f"choose-cifar-on-{name}": Job("cifar", "resnet26w2_cifar", recipe, choosing=True, compiled=True,
                                      after="choose-cifar-random-first")
       for name, recipe in FROM_RANDOM.items()},
}  # fmt: skip
ON_MORE_TOKENS = {f"choose-kept-{name}-384": Job("imagenette", "deit_tiny_enlarged_384", KEPT[f"kept-{name}"],
                                                 DEIT_TINY, choosing=True, images=800, compiled=True)
                  for name in ("worst", "greedy")}  # fmt: skip
"""Two of them once more, on the picture enlarged: three times as many tokens."""
MIXED = ("choose-kept-greedy", "choose-kept-long")
CHOOSING["choose-kept-taught"] = replace(CHOOSING["choose-kept-taught"], teachers=MIXED)

WIDE = {**CIFAR, "cutout": "pairs", "patch": 5, "levels": (2, 3), "average": 0.998}
WIDE_ON = {**WIDE, "rate": 0.08, "warm_up": 0.0}
LARGE_DEIT = {**PAIRED, "patch": 35, "levels": (2, 3), "batch": 256, "shift": 28, "whole": True}
LONG_DEIT = {**PAIRED, "patch": 35, "levels": (2, 3), "batch": 256, "shift": 28, "zoom": 0.8, "colour": 0.2, "tries": 6,
             "one_cover": True, "rate": 2e-4, "average": 0.998}  # fmt: skip
UNTAUGHT = {"tries": 10, "one_cover": True, "colour": 0.2, "epochs": 18}
TAUGHT = {**UNTAUGHT, "taught": 0.6}

NETWORKS = {
    "worst-long": Job("imagenette", DEIT_TINY, {**ALL_LEVELS, "tries": 6, "zoom": 0.7, "colour": 0.2, "rate": 1.5e-4,
                      "epochs": 40}, DEIT_TINY, compiled=True),
    "cifar-wide-first": Job("cifar", "resnet26w3_cifar", WIDE, images=500, compiled=True, precision="fp16"),
    "cifar-wide-second": Job("cifar", "resnet26w3_cifar", {**WIDE_ON, "epochs": 10, "tries": 6, "whole": True},
                             after="cifar-wide-first", images=10_000, compiled=True, precision="fp16"),
    "cifar-wide": Job("cifar", "resnet26w3_cifar", {**WIDE_ON, "epochs": 14, "tries": 10}, after="cifar-wide-second",
                      images=10_000, compiled=True, precision="fp16"),
    "cifar-wide-on": Job("cifar", "resnet26w3_cifar", {**WIDE_ON, "epochs": 20, "tries": 10}, after="cifar-wide",
                         images=10_000, compiled=True, precision="fp16"),
    "cifar-wide-turns": Job("cifar", "resnet26w3_cifar", {**WIDE_ON, "epochs": 20, "tries": 10, "one_cover": True},
                            after="cifar-wide-on", images=10_000, compiled=True, precision="fp16"),
    "cifar-deit-first": Job("cifar", DEIT_TINY, {**LARGE_DEIT, "epochs": 12, "rate": 2e-4, "average": 0.998}, DEIT_TINY,
                            compiled=True, patch=35),
    "cifar-deit-pairs": Job("cifar", DEIT_TINY, {**LARGE_DEIT, "epochs": 5, "tries": 6, "warm_up": 0.2,
                            "average": 0.997}, after="cifar-deit-first", compiled=True, patch=35),
    "cifar-deit-on": Job("cifar", DEIT_TINY, {**LARGE_DEIT, "epochs": 8, "tries": 6, "warm_up": 0.2, "average": 0.998},
                         after="cifar-deit-first", compiled=True, patch=35),
    "cifar-deit-turns": Job("cifar", DEIT_TINY, {**LARGE_DEIT, "epochs": 10, "tries": 6, "one_cover": True,
                            "warm_up": 0.2, "average": 0.998}, after="cifar-deit-first", compiled=True, patch=35),
    "cifar-deit-long": Job("cifar", DEIT_TINY, {**LONG_DEIT, "epochs": 22}, DEIT_TINY, compiled=True, patch=35),
    "cifar-wide-taught": Job("cifar", "resnet26w3_cifar", {**WIDE_ON, **TAUGHT}, after="cifar-wide-turns",
                             teachers=("cifar-deit-long",), images=10_000, compiled=True, precision="fp16"),
    "cifar-wide-untaught": Job("cifar", "resnet26w3_cifar", {**WIDE_ON, **UNTAUGHT}, after="cifar-wide-turns",
                               images=10_000, compiled=True, precision="fp16"),
    "cifar-deit-taught": Job("cifar", DEIT_TINY, {**LONG_DEIT, "levels": (3,), "tries": 8, "epochs": 28,
                             "taught": 0.3}, DEIT_TINY, teachers=("cifar-wide-taught",), compiled=True, patch=35),
}  # fmt: skip
"""Pairs of masks, the worst of several in the end."""

ROW = {"schedule": "cosine", "warm_up": 1.0, "batch": 128, "cutout": "pairs", "levels": LEVELS, "average": 0.99}
ROW_SGD = {**ROW, "rate": 0.02, "weight_decay": 1e-4}
ROW_V2 = {**ROW_SGD, "rate": 0.05}
ROW_WORST = {"tries": 4, "one_cover": True}
ROW_MLP = {**ROW, "rate": 0.001, "weight_decay": 0.05, "optimizer": "adamw", "warm_up": 3.0, "smoothing": 0.1}
ROWS = {
    "paper-resnetv2": Job("imagenette", "resnetv2_50", {**RESNET, "cutout": "random"}, images=500, compiled=True),
    "row-resnet50": Job("imagenette", RESNET_50, {**ROW_SGD, "patch": 32, "zoom": 0.6}, RESNET_50, images=500,
                        compiled=True),
    "row-resnetv2": Job("imagenette", "resnetv2_50", {**ROW_V2, "patch": 32, "epochs": 12, "zoom": 0.6}, RESNET_50,
                        images=500, compiled=True),
    "row-resnet50-worst": Job("imagenette", RESNET_50, {**ROW_SGD, **ROW_WORST, "patch": 32, "zoom": 0.6}, RESNET_50,
                              images=500, compiled=True),
    "row-resnetv2-worst": Job("imagenette", "resnetv2_50", {**ROW_V2, **ROW_WORST, "patch": 32, "epochs": 12,
                              "zoom": 0.6}, RESNET_50, images=500, compiled=True),
    "row-resmlp": Job("imagenette", "resmlp_24_224", {**ROW_MLP, "patch": 32, "epochs": 40, "zoom": 0.4}, images=500,
                      compiled=True),
    "row-cifar-resnetv2": Job("cifar", "resnetv2_50", {**ROW_V2, "patch": 35, "epochs": 4, "shift": 28}, RESNET_50,
                              images=500, compiled=True, patch=35),
    "row-resmlp-taught": Job("imagenette", "resmlp_24_224", {**ROW_MLP, "patch": 32, "epochs": 30, "zoom": 0.5,
                             "colour": 0.2, "taught": 0.6}, teachers=("deit-greedy",), images=500, compiled=True),
    "row-cifar-resmlp": Job("cifar", "resmlp_24_224", {**ROW_MLP, "patch": 35, "epochs": 10, "shift": 28}, images=500,
                            compiled=True, patch=35),
}  # fmt: skip
"""Networks of the paper; the first by its recipe to the letter, from scratch."""

JOBS = {**FIRST_NETWORKS, **CHOOSING, **ON_MORE_TOKENS, **NETWORKS, **ROWS}
