"""``certmask certify``."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from certmask.classifier import Classifier
from certmask.cli.choices import Choices
from certmask.cli.console import figures_table, out, progress_bar
from certmask.covers import Cover
from certmask.data import Dataset, load_dataset
from certmask.engine import Engine
from certmask.margin import measured_margin
from certmask.report import summarize
from certmask.results import read_results
from certmask.run import certify_run
from certmask.zoo import crop_share, imagenet_synsets


def run(source: str, choices: Choices, images: int | None, path: Path) -> None:
    """Certify a data set with the chosen rules on one cover, then print the table."""
    fixed = choices.fixed_margin()
    classifier = choices.classifier()
    cover = choices.cover(classifier)
    dataset = load_dataset(source, class_aliases(classifier), crop_share(choices.model)).first(images)
    margin = run_margin(classifier, cover, dataset, path) if fixed is None else fixed
    schemes = choices.schemes(cover, margin)
    out.print(f"{classifier.name}, {classifier.precision} on {classifier.device}; {cover}; {len(dataset)} images")
    with progress_bar(len(dataset)) as progress:
        header, rows = certify_run(classifier, dataset, schemes, path, progress=progress)
    out.print(figures_table(summarize(header, rows), f"{len(rows)} images, {classifier.name}"))
    for scheme in schemes:
        out.print(f"  {scheme.name}: {scheme.rule.guarantee.sentence}")
    out.print(f"margin {margin:.3g}{' (measured)' if fixed is None else ''}; saved in {path}")


def run_margin(classifier: Classifier, cover: Cover, dataset: Dataset, path: Path) -> float:
    """The margin that a run to be continued has recorded, else one measured on the first images."""
    if path.is_file() and path.stat().st_size:
        header, _ = read_results(path)
        return max((scheme["rule"]["margin"] for scheme in header["schemes"].values()), default=0.0)
    return measured_margin(Engine(classifier, [cover]), list(islice(dataset.tensors(classifier.size), 2)))


def class_aliases(classifier: Classifier) -> list[tuple[str, ...]]:
    """Names that folders and label files may use for each class."""
    if classifier.classes == 1000:
        return list(zip(imagenet_synsets(), classifier.class_names, strict=True))
    return [(name,) for name in classifier.class_names]
