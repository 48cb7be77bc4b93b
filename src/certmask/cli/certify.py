"""``certmask certify``."""

from __future__ import annotations

from pathlib import Path

from certmask.classifier import Classifier
from certmask.cli.choices import Choices
from certmask.cli.console import figures_table, out, progress_bar
from certmask.data import load_dataset
from certmask.report import summarize
from certmask.run import certify_run
from certmask.zoo import crop_share, imagenet_synsets


def run(source: str, choices: Choices, images: int | None, path: Path) -> None:
    """Certify a data set with the chosen rules on one cover, then print the table."""
    classifier = choices.classifier()
    cover = choices.cover(classifier)
    schemes = choices.schemes(cover)
    dataset = load_dataset(source, class_aliases(classifier), crop_share(choices.model)).first(images)
    out.print(f"{classifier.name}, {classifier.precision} on {classifier.device}; {cover}; {len(dataset)} images")
    with progress_bar(len(dataset)) as progress:
        header, rows = certify_run(classifier, dataset, schemes, path, progress=progress)
    out.print(figures_table(summarize(header, rows), f"{len(rows)} images, {classifier.name}"))
    for scheme in schemes:
        out.print(f"  {scheme.name}: {scheme.rule.guarantee.sentence}")
    out.print(f"saved in {path}")


def class_aliases(classifier: Classifier) -> list[tuple[str, ...]]:
    """Names that folders and label files may use for each class."""
    if classifier.classes == 1000:
        return list(zip(imagenet_synsets(), classifier.class_names, strict=True))
    return [(name,) for name in classifier.class_names]
