"""What a report says about one defence of one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from certmask.certificate import Guarantee
from certmask.report.intervals import Share
from certmask.report.run_files import RunFile
from certmask.threat import Size


@dataclass(frozen=True)
class Findings:
    """One defence over all images of a run; ``certified`` and ``masks`` are None where the rule promises nothing.

    Times are estimates: passes, times the run's mean time of one pass.
    """

    run: str
    model: str
    data: str
    defence: str
    guarantee: Guarantee
    patch: Size
    image: Size
    mask: Size
    masks: int | None
    clean: Share
    certified: Share | None
    false_alerts: Share
    answer_passes: float
    proof_passes: float | None
    proved_passes: float | None
    unproved_passes: float | None
    pass_milliseconds: float | None

    @property
    def images(self) -> int:
        return self.clean.of

    def certified_as(self, guarantee: Guarantee) -> Share | None:
        """The certified share if it is of this kind: kinds never share a column."""
        return self.certified if self.guarantee is guarantee else None

    def milliseconds(self, passes: float | None) -> float | None:
        return None if passes is None or self.pass_milliseconds is None else passes * self.pass_milliseconds

    def describe(self) -> dict[str, Any]:
        """Plain numbers, shares from 0 to 1; the record of a CSV file."""
        record: dict[str, Any] = {
            "run": self.run,
            "model": self.model,
            "data": self.data,
            "defence": self.defence,
            "guarantee": self.guarantee.value,
            "image_height": self.image[0],
            "image_width": self.image[1],
            "patch_height": self.patch[0],
            "patch_width": self.patch[1],
            "mask_height": self.mask[0],
            "mask_width": self.mask[1],
            "masks": self.masks,
            "images": self.images,
        }
        for name, share in (("clean_accuracy", self.clean), *self._kinds(), ("false_alerts", self.false_alerts)):
            record |= described_share(name, share)
        return record | {
            "passes_to_answer": self.answer_passes,
            "passes_to_prove": self.proof_passes,
            "passes_to_prove_if_proved": self.proved_passes,
            "passes_to_prove_if_not": self.unproved_passes,
            "estimated_milliseconds_to_answer": self.milliseconds(self.answer_passes),
            "estimated_milliseconds_to_prove": self.milliseconds(self.proof_passes),
        }

    def _kinds(self) -> list[tuple[str, Share | None]]:
        kinds = {
            "certified_recovery": Guarantee.RECOVERY,
            "certified_detection": Guarantee.DETECTION,
            "published_test": Guarantee.PUBLISHED,
        }
        return [(name, self.certified_as(kind)) for name, kind in kinds.items()]


def described_share(name: str, share: Share | None) -> dict[str, float | int | None]:
    """Count, share and interval as four fields."""
    low, high = share.interval if share else (None, None)
    count, value = (share.count, share.value) if share else (None, None)
    return {f"{name}_count": count, name: value, f"{name}_low": low, f"{name}_high": high}


def findings(run: RunFile) -> list[Findings]:
    """One entry per defence of a certification run."""
    return [_findings(run, defence) for defence in run.defences]


def _findings(run: RunFile, defence: str) -> Findings:
    cover, guarantee = run.defences[defence]["cover"], run.guarantee(defence)
    found = [(row["label"], row["defences"][defence]) for row in run.rows]
    proves = guarantee is not Guarantee.NONE
    prices = [(o["certified"], o["certificate_passes"]) for _, o in found] if proves else []
    return Findings(
        run=run.name,
        model=run.model["name"],
        data=run.header["data"]["name"],
        defence=defence,
        guarantee=guarantee,
        patch=(cover["patch"][0], cover["patch"][1]),
        image=(cover["image"][0], cover["image"][1]),
        mask=(cover["mask"][0], cover["mask"][1]),
        masks=cover["masks"] if proves else None,
        clean=_share([o["label"] == label and not o["alert"] for label, o in found]),
        certified=_share([o["certified"] for _, o in found]) if proves else None,
        false_alerts=_share([o["alert"] for _, o in found]),
        answer_passes=sum(o["passes"] for _, o in found) / len(found),
        proof_passes=_mean([passes for _, passes in prices]),
        proved_passes=_mean([passes for proved, passes in prices if proved]),
        unproved_passes=_mean([passes for proved, passes in prices if not proved]),
        pass_milliseconds=pass_milliseconds(run),
    )


def pass_milliseconds(run: RunFile) -> float | None:
    """The mean time of one pass in this run; None where no time was recorded."""
    seconds, passes = sum(row["seconds"] for row in run.rows), sum(row["passes"] for row in run.rows)
    return 1000 * seconds / passes if seconds and passes else None


def _share(held: Sequence[bool]) -> Share:
    return Share(sum(held), len(held))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
