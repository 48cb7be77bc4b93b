"""The paper's tables, declared: their patches, the defences that stand for its methods, the figures it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from certmask.experiments.experiment import Comparison, DeclaredDefence, Experiment, LabelledPatch, Reported
from certmask.threat import Size
from certmask.zoo.networks import BANDS, CELLS

if TYPE_CHECKING:
    from certmask.covers.zoom import Level

PAPER_MODELS = ("resnetv2_50x1_bit.goog_distilled_in1k", "vit_base_patch16_224", "resmlp_24_224.fb_distilled_in1k")
"""ResNetV2-50, ViT-B/16 and ResMLP-S24; which of timm's checkpoints the paper took is our reading."""

SIDES = {"0.4 %": 14, "1 %": 23, "2 %": 32, "2.4 %": 35, "3 %": 39}
"""1, 2 and 3 % rounded up to pixels; CIFAR-10's 0.4 and 2.4 % are 2 and 5 of its 32 pixels, enlarged sevenfold."""

MASKS = {"0.4 %": 16, "1 %": 32, "2 %": 48, "2.4 %": 56, "3 %": 56}
"""Mask sides of the paper's Table 1."""

PAPER_FOLD = (2, 3)
"""k = 3 × 2 with three masks along the x axis, as (height, width)."""

PATCHES = {label: LabelledPatch(label, side) for label, side in SIDES.items()}
ON_PHOTOS = tuple(PATCHES[label] for label in ("1 %", "2 %", "3 %"))
ON_CIFAR = (PATCHES["0.4 %"], PATCHES["2.4 %"])
SHARES = {"imagenette": ON_PHOTOS, "imagenet": ON_PHOTOS, "cifar10": ON_CIFAR}
LARGEST = {data: patches[-1:] for data, patches in SHARES.items()}
TWO_PERCENT = {"imagenet": (PATCHES["2 %"],)}

SAME_COVER = (
    "The first certifies whatever passes the second, by a theorem: only how much more it certifies is measured."
)
MASKS_WITHIN = (
    "The masks of k = 1 are among those of k = 6, so the first passes wherever the second does: only how much more "
    "often is measured."
)
DETECTION_MEASURES = ("clean_accuracy", "published_test", "certified_detection", "false_alerts")


def unanimity_and_juries(settings: Mapping[str, tuple[Size, int]]) -> tuple[DeclaredDefence, ...]:
    """The published rule and jury detection on the Offset cover of every fold and mask, by what tells them apart."""
    return (
        *(DeclaredDefence(f"published{of}", "published", "offset", *size, paper=of.strip(", "))
          for of, size in settings.items()),
        *(DeclaredDefence(f"jury detection{of}", "jury-detection", "offset", *size) for of, size in settings.items()),
    )  # fmt: skip


UNDEFENDED = DeclaredDefence("undefended", "undefended", "patchcleanser", per_axis=6)
CLEANSER = DeclaredDefence("PatchCleanser 6×6", "patchcleanser", "patchcleanser", per_axis=6, paper="PC")
CHALLENGER = DeclaredDefence("PatchCleanser challenger 6×6", "patchcleanser-challenger", "patchcleanser", per_axis=6)
HICERT = DeclaredDefence("HiCert, exact minimum k=1", "hicert", "minimal", (1, 1), MASKS["2 %"])
JURIES = DeclaredDefence(
    "jury recovery k=4, aligned", "jury-recovery", "spread", (2, 2), per_axis=4, parameters={"pairs": "aligned"}
)
LEVELS: tuple[Level, ...] = (2, 3, 6, 12)
"""Zoom's masks per axis, as shipped."""
ZOOM = DeclaredDefence("zoom", "zoom", "zoom", levels=LEVELS)
ZOOM_DETECTION = DeclaredDefence("zoom detection", "zoom-detection", "zoom", levels=LEVELS)
ZOOM_AHEAD = Comparison("zoom against PatchCleanser", ZOOM.name, CLEANSER.name)
AT_THE_SAME_PRICE = Comparison(
    "juries at fold 2×2 against PatchCleanser, at most 881 and 666 passes", JURIES.name, CLEANSER.name
)

PRINTED_1 = """
CM-ResNet  99.8 99.2 99.7 98.9 99.7 98.6  81.9 72.2 81.7 69.8 81.7 68.5  97.9 94.6 98.0 92.4
CM-ViT     99.6 99.1 99.6 99.0 99.6 98.9  84.1 77.6 84.5 75.5 84.5 74.0  99.0 97.7 98.8 96.4
CM-MLP     99.4 98.9 99.4 98.7 99.4 98.5  80.2 72.1 80.0 69.8 79.8 67.9  97.5 93.8 97.1 90.8
PC-ResNet  99.6 96.4 99.6 94.4 99.5 93.5  81.7 58.4 81.6 53.0 81.4 50.0  98.0 88.5 97.8 78.8
PC-ViT     99.6 97.5 99.6 96.4 99.5 95.3  84.1 66.4 83.9 62.1 83.8 59.0  99.0 94.3 98.7 89.1
PC-MLP     99.4 96.8 99.3 95.1 99.4 94.6  79.6 58.4 79.4 53.8 79.3 50.7  97.4 86.1 97.0 78.0
CBN        94.9 74.6 94.9 69.9 94.9 45.9  49.5 13.4 49.5 7.1 49.5 3.1    84.2 44.2 84.2 9.3
DS         92.1 82.3 92.1 79.1 92.1 75.7  44.4 17.7 44.4 14.0 44.4 11.2  83.9 68.9 83.9 56.2
PG-BN      95.2 89.0 95.0 86.7 94.8 83.0  55.1 32.3 54.6 26.0 54.1 19.7  84.5 63.8 83.9 47.3
PG-DS      92.3 83.1 92.1 79.9 92.1 76.8  44.1 19.7 43.6 15.7 43.0 12.5  84.7 69.2 84.6 57.7
"""
"""Clean and robust for ImageNette 1, 2, 3 %, ImageNet 1, 2, 3 %, CIFAR-10 0.4, 2.4 %."""

PRINTED_2 = {"ResNet": (99.8, 82.3, 98.3), "ViT": (99.8, 84.8, 99.0), "MLP": (99.5, 80.2, 97.8)}
"""Clean for ImageNette, ImageNet, CIFAR-10."""

PRINTED_3 = """
Replicated-ResNet  99.5 99.3  77.9 73.7  96.1 94.9
Offset-ResNet      99.7 98.6  81.7 68.5  98.0 92.4
Replicated-ViT     99.4 99.2  82.0 78.6  98.4 97.8
Offset-ViT         99.6 98.9  84.5 74.0  98.8 96.4
Replicated-MLP     99.2 99.0  76.7 72.5  95.7 94.1
Offset-MLP         99.4 98.5  79.8 67.9  97.1 90.8
"""
"""Clean and robust for ImageNette, ImageNet 3 %, CIFAR-10 2.4 %."""

PRINTED_4 = {1: (82.0, 78.6), 2: (80.8, 77.0), 3: (82.5, 76.2), 4: (83.4, 74.9), 5: (83.8, 75.7), 6: (84.5, 74.0)}
"""k: clean and robust, ViT on ImageNet."""


def printed(text: str, place: str, patches: Mapping[str, tuple[LabelledPatch, ...]]) -> tuple[Reported, ...]:
    """The figures of a table; a method that does not stand for one of the three families brings its own network."""
    columns = [(data, patch.label) for data, ones in patches.items() for patch in ones]
    found = []
    for line in text.strip().split("\n"):
        name, *figures = line.split()
        method, _, model = name.partition("-") if name.endswith(("-ResNet", "-ViT", "-MLP")) else (name, "", "")
        pairs = zip(map(float, figures[::2]), map(float, figures[1::2]), strict=True)
        found += [Reported(method, model, *column, place, *pair) for column, pair in zip(columns, pairs, strict=True)]
    return tuple(found)


OTHERS = (
    DeclaredDefence("DS", "smoothing", "bands", network=BANDS, paper="DS", parameters={"theta": 0.3, "exact": False}),
    DeclaredDefence("DS, place by place", "smoothing", "bands", network=BANDS, parameters={"theta": 0.3}),
    DeclaredDefence("DS, first classes, place by place", "smoothing", "bands", network=BANDS),
    DeclaredDefence("PG-DS", "patchguard-smoothing", "bands", network=BANDS, paper="PG-DS"),
    DeclaredDefence("undefended, all cells", "undefended", "", network=CELLS),
    DeclaredDefence("PG-BN", "patchguard", "", network=CELLS, paper="PG-BN"),
    DeclaredDefence("CBN", "clipped-bagnet", "", network=CELLS, paper="CBN"),
    DeclaredDefence("CBN, slope 0.1", "clipped-bagnet", "", network=CELLS, parameters={"slope": 0.1}),
)
"""The paper's other methods, each for a kind of network of its own."""

OTHERS_NOTE = (
    "DS, PG-DS, PG-BN and CBN run on networks of their own: DS and PG-DS on one trained on bands, PG-BN and CBN on a "
    "BagNet. DS has the published certificate (a lead of twice the bands that a patch touches); place by place, the "
    "same votes with the bands that each place really touches. CBN squashes local logits u to tanh(0.05·u − 1) as "
    "published, for networks whose logits are large; the slope 0.1 was chosen on photos that are not reported here."
)


def defences_1(patch: LabelledPatch) -> tuple[DeclaredDefence, ...]:
    mask = MASKS[patch.label]
    return (
        UNDEFENDED,
        DeclaredDefence("published k=6", "published", "offset", PAPER_FOLD, mask, paper="CM"),
        DeclaredDefence("jury detection k=6", "jury-detection", "offset", PAPER_FOLD, mask),
        DeclaredDefence("Minority Reports k=6", "minority-reports", "offset", PAPER_FOLD, mask),
        DeclaredDefence("HiCert k=6", "hicert", "offset", PAPER_FOLD, mask),
        DeclaredDefence("published, exact minimum k=1", "published", "minimal", (1, 1), mask),
        DeclaredDefence("jury detection, exact minimum k=1", "jury-detection", "minimal", (1, 1), mask),
        replace(HICERT, mask=mask),
        CLEANSER,
        CHALLENGER,
        JURIES,
        ZOOM,
        ZOOM_DETECTION,
        *OTHERS,
    )


TABLE1 = Experiment(
    "table1", "Clean and certified accuracy, k = 6", "Table 1", SHARES, defences_1,
    reported=printed(PRINTED_1, "Table 1", SHARES),
    comparisons=(
        Comparison("juries against unanimity on the same k = 6 cover",
                   "jury detection k=6", "published k=6", SAME_COVER),
        AT_THE_SAME_PRICE,
        ZOOM_AHEAD,
    ),
    notes=(
        "Six of these defences are in the paper's table: published k=6 (its CM), PatchCleanser 6×6 (its PC), DS, "
        "PG-DS, PG-BN and CBN. The paper never says how it certified: its robust figure of CM is the published test, "
        "as we read it, that of the others certified recovery.",
        "PatchCleanser has 6×6 masks here, our reading of its best reported configuration.",
        OTHERS_NOTE,
    ),
)  # fmt: skip

IN_THE_PHOTO = {
    "cifar10": (LabelledPatch("2 px in the photo", 34, photo=2), LabelledPatch("5 px in the photo", 55, photo=5)),
}
"""What a patch of 2 or 5 of CIFAR-10's 32 pixels reaches in the 224×224 input, enlarged sevenfold by bicubic
interpolation: a pixel moves all that lie less than two pixels of the photo from its centre."""

TABLE1_PHOTO = Experiment(
    "table1-photo", "CIFAR-10 with the patch in the 32×32 photo, before it is enlarged", "beside Table 1",
    IN_THE_PHOTO, lambda _: (UNDEFENDED, CLEANSER, JURIES, ZOOM, ZOOM_DETECTION, *OTHERS),
    notes=(
        "Table 1 mixes two threats on CIFAR-10: mask defences are measured with a 14 or 35 px patch on the 224×224 "
        "input, DS, PatchGuard and CBN usually with a 2 or 5 px patch in the 32×32 photo. The latter reaches up to 34 "
        "or 55 px of the input: it is the stronger attacker, and every defence here is measured against it. A network "
        "that takes the 32×32 photo as it is meets 2 or 5 px there.",
        OTHERS_NOTE,
    ),
)  # fmt: skip

TABLE2 = Experiment(
    "table2", "Clean accuracy of the undefended models", "Table 2", {"imagenet": (LabelledPatch("none", 32),)},
    lambda _: (DeclaredDefence("undefended", "undefended", "patchcleanser", per_axis=6, paper="vanilla"),),
    reported=tuple(Reported("vanilla", model, data, "none", "Table 2", clean)
                   for model, row in PRINTED_2.items() for data, clean in zip(SHARES, row, strict=True)),
)  # fmt: skip

ONE_PAVEMENT = (
    "The paper prints the same figures for Replicated at k = 6 (Table 3) and Offset at k = 1 (Table 4), as if both "
    "were one pavement. By its formulas they are not, and so not here: on 224×224 both place 14×14 masks of 56 pixels, "
    "one every 17 pixels, but Offset's begin at −28 and wrap around the border, Replicated's begin at −19 and are cut "
    "off there: no mask is in both."
)


DEFENCES_3 = (
    DeclaredDefence("published, Replicated k=6", "published", "replicated", PAPER_FOLD, 56, paper="Replicated"),
    DeclaredDefence("published, Replicated k=1", "published", "replicated", (1, 1), 56),
    DeclaredDefence("published, Offset k=6", "published", "offset", PAPER_FOLD, 56, paper="Offset"),
    DeclaredDefence("jury detection, Replicated k=6", "jury-detection", "replicated", PAPER_FOLD, 56),
    DeclaredDefence("jury detection, Offset k=6", "jury-detection", "offset", PAPER_FOLD, 56),
)

TABLE3 = Experiment(
    "table3", "Replicated against Offset Tiling, k = 6", "Table 3", LARGEST, lambda _: DEFENCES_3,
    reported=printed(PRINTED_3, "Table 3", LARGEST),
    comparisons=(
        Comparison("published test: Replicated against Offset", "published, Replicated k=6", "published, Offset k=6"),
        Comparison("juries: Offset against Replicated", "jury detection, Offset k=6", "jury detection, Replicated k=6"),
        Comparison("juries against unanimity on the Offset cover",
                   "jury detection, Offset k=6", "published, Offset k=6", SAME_COVER),
    ),
    notes=(
        "Copies of a mask vote alike: Replicated Tiling passes the test for k = 6 just where it does for k = 1.",
        ONE_PAVEMENT,
    ),
)  # fmt: skip

FOLDS_4 = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (1, 5), 6: (2, 3)}
"""k as (height, width). The paper says 3 × 2 for k = 6; the other factors are our reading."""

TABLE4 = Experiment(
    "table4", "Coverage k = 1 … 6, Offset Tiling", "Table 4", LARGEST,
    lambda _: unanimity_and_juries({f" k={k}": (fold, 56) for k, fold in FOLDS_4.items()}),
    reported=tuple(Reported(f"k={k}", "ViT", "imagenet", "3 %", "Table 4", *row) for k, row in PRINTED_4.items()),
    comparisons=(
        Comparison("juries against unanimity at k = 6", "jury detection k=6", "published k=6", SAME_COVER),
        Comparison("published test: k = 1 against k = 6", "published k=1", "published k=6", MASKS_WITHIN),
        Comparison("juries: k = 6 against k = 1", "jury detection k=6", "jury detection k=1"),
    ),
    panels=tuple(("k", measure) for measure in DETECTION_MEASURES),
    notes=(
        "The paper gives k = 3 × 2 only for k = 6; here k is 1×1, 2×1, 3×1, 2×2, 5×1, 3×2 (x × y).",
        ONE_PAVEMENT,
    ),
)  # fmt: skip
