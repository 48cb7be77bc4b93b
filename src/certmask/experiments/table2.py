"""Table 2: accuracy of the models without any defence."""

from __future__ import annotations

from certmask.experiments.defences import undefended
from certmask.experiments.experiment import Case, Experiment, Reported, Threat

PRINTED = {"ResNet": (99.8, 82.3, 98.3), "ViT": (99.8, 84.8, 99.0), "MLP": (99.5, 80.2, 97.8)}
"""ImageNette, ImageNet, CIFAR-10."""

NO_PATCH = Threat("none", 32)


def cases(_: Threat) -> tuple[Case, ...]:
    return (undefended(paper="vanilla"),)


TABLE2 = Experiment(
    name="table2",
    title="Clean accuracy of the undefended models",
    place="Table 2",
    threats={"imagenet": (NO_PATCH,)},
    cases=cases,
    reported=tuple(
        Reported("vanilla", model, data, "none", "Table 2", clean=clean)
        for model, row in PRINTED.items()
        for data, clean in zip(("imagenette", "imagenet", "cifar10"), row, strict=True)
    ),
)
