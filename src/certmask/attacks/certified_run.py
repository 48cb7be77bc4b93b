"""A finished certification run, rebuilt so that exactly what was certified can be attacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from certmask.attacks.scene import Scene
from certmask.certificate import Guarantee
from certmask.certification import checked_stickers
from certmask.classifier import Classifier
from certmask.data import Dataset, Framing, pixel_digest
from certmask.defences import PhotoDefence, RuledDefence, defence_from, photo_defence_from
from certmask.errors import ResultsError
from certmask.results.file import Row
from certmask.results.run import Run, read_run
from certmask.threat import Size


@dataclass(frozen=True)
class CertifiedRun:
    """A results file of a certification, and its defences as they were deployed."""

    run: Run
    defences: tuple[RuledDefence | PhotoDefence, ...]

    def chosen(self, names: Sequence[str]) -> list[RuledDefence | PhotoDefence]:
        """The defences of these names, all of them if no name is given."""
        known = [defence.name for defence in self.defences]
        for name in names:
            if name not in known:
                raise ResultsError(f"expected a rule of the run ({', '.join(known)}), got {name!r}")
        return [defence for defence in self.defences if not names or defence.name in names]

    def attackable(self, defence: RuledDefence | PhotoDefence) -> list[Row]:
        """Rows by image whose certificate holds; for a rule without one, those answered rightly without an alert.

        Against patches of unknown size, it holds for those up to the row's ``side``, unless that is 0.
        Rows that were made with another batch than the header says (memory ran short) belong to another function, and
        photos in which the patch reaches too much of the input have no defence.
        """
        rows = [row for row in self._rows() if isinstance(defence, RuledDefence) or row["photo"]["threat"]]
        return [row for row in rows if _promised(defence, row["defences"][defence.name], row["label"])]

    def uncertified(self, defence: RuledDefence | PhotoDefence) -> list[Row]:
        """Rows by image that are answered rightly, without an alert, and whose certificate does not hold.

        There are none for a rule that certifies nothing.
        """
        told = [(row, row["defences"][defence.name]) for row in self._rows() if defence.guarantee.proved]
        return [row for row, outcome in told if _right(outcome, row["label"]) and not _certified(outcome)]

    def _rows(self) -> list[Row]:
        batch = self.run.model["batch"]
        rows = [row for row in self.run.rows if row.get("batch", batch) == batch]
        return sorted(rows, key=lambda row: str(row["image"]))


def _promised(defence: RuledDefence | PhotoDefence, outcome: Row, label: int) -> bool:
    if defence.rule.guarantee is Guarantee.NONE:
        return _right(outcome, label)
    return _certified(outcome)


def _certified(outcome: Row) -> bool:
    """Against the whole threat or, where it has steps, against one of them."""
    return bool(outcome["certified"] or outcome.get("side"))


def _right(outcome: Row, label: int) -> bool:
    return bool(outcome["label"] == label and not outcome["alert"])


def read_certified(path: Path) -> CertifiedRun:
    """Read a results file of ``certmask certify`` or ``demo``."""
    run = read_run(path)
    if run.kind != "certify":
        raise ResultsError(f"expected a results file of a certification run, got {path}")
    return CertifiedRun(run, tuple(_rebuilt(description) for description in run.defences.values()))


def _rebuilt(description: Row) -> RuledDefence | PhotoDefence:
    return photo_defence_from(description) if "classes" in description else defence_from(description)


def check_weights(run: Run, classifier: Classifier) -> None:
    """Refuse a model with other weights than were certified, before anything else about it can fail to fit."""
    wanted = run.model.get("weights_sha256")
    if classifier.weights != wanted:
        raise ResultsError(
            f"expected the weights of {run.model.get('name')} that {run.path} certified, with weights_sha256 "
            f"{wanted!r}, got {classifier.weights!r}: give them with --model FILE or --weights FILE"
        )


def certified_scenes(run: Run, dataset: Dataset, names: set[str], families: Sequence[PhotoDefence]) -> dict[str, Scene]:
    """The stored photos of these images with the patch in them; an error if it is not the one that its row names."""
    scenes, rows = {}, [row for row in run.rows if row["image"] in names]
    for sample, sticker in checked_stickers(dataset, rows, families, f"as in {run.path}"):
        patch = sticker.patch[::-1] if sticker.photo.turned else sticker.patch
        upright = (sticker.photo.upright, dataset.framing, sticker.image, patch, sticker.threat)
        scenes[sample.name] = Scene(sample.photo, *upright)
    return scenes


def certified_photos(run: Run, dataset: Dataset, names: set[str], size: Size) -> dict[str, Tensor]:
    """The model inputs of these images; an error if one is missing, or is not the picture that was certified."""
    rows = {row["image"]: row for row in run.rows if row["image"] in names}
    samples = {sample.name: sample for sample in dataset.samples}
    if Framing.described(run.data) != dataset.framing:
        raise ResultsError(f"expected {Framing.described(run.data)} as in {run.path}, got {dataset.framing}")
    for name, row in rows.items():
        if name not in samples:
            raise ResultsError(f"expected the photo {name} of {run.path}, got none of that name in {dataset.name}")
        if samples[name].label != row["label"]:
            raise ResultsError(f"expected label {row['label']} for {name}, got {samples[name].label}")
    wanted = dataset.without(frozenset(samples.keys() - rows.keys()))
    photos = dict(zip((s.name for s in wanted.samples), wanted.tensors(size), strict=True))
    for name, photo in photos.items():
        if pixel_digest(photo) != rows[name]["input_sha256"]:
            raise ResultsError(f"expected the photo {name} as it was certified, got one with other pixels")
    return photos
