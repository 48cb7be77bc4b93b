"""The gauntlet: attempts on images of a run, one row each, resumable; every one judged by the deployed defence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import inf
from pathlib import Path
from time import monotonic

import numpy as np
import torch
from torch import Tensor

from certmask.attacks.attack import Attacked, Job, defence_judge
from certmask.attacks.attempts import Attempt, Budget
from certmask.attacks.descent import Descent, Surrogate
from certmask.attacks.goals import Juries
from certmask.attacks.means import check_allowed
from certmask.attacks.patch_attack import AdaptiveAttack, EvidenceAttack, PatchAttack
from certmask.attacks.pictures import save_picture
from certmask.attacks.scene import Scene
from certmask.certificate import Decision, Guarantee
from certmask.covers import Cover, minimal_cover
from certmask.data import pixel_digest
from certmask.defences import LocalDefence, MaskedDefence, PhotoDefence, RuledDefence
from certmask.engine import Engine
from certmask.errors import BrokenCertificateError, ResultsError
from certmask.geometry import IntArray
from certmask.results.file import ResultsFile, Row, picture_folder, provenance
from certmask.results.run import Placed, Run, check_begun, read_run
from certmask.threat import Patch, PhotoPatch, Size, Threat

JUDGED_TOGETHER = {"cuda": 8, "cpu": 4}
"""How many batches of attempts are judged in one go: a GPU wants full batches, a CPU early rows."""


@dataclass(frozen=True)
class Gauntlet:
    """Attempts and everything that they need: the deployed engine, the surrogate for gradients, photos by name.

    Rows go to the file ``out``; ``save`` pictures are kept per defence, those of a broken proof always. An attempt on
    an image that is not certified breaks nothing: its row says so, and whether the answer ``fell``. Where the threat is
    a patch in the stored photo, ``scenes`` has those by name: the patch is written into them.
    """

    run: Run
    defences: Sequence[RuledDefence | PhotoDefence]
    attempts: Sequence[Attempt]
    engine: Engine
    surrogate: Surrogate
    photos: Mapping[str, Tensor]
    budget: Budget
    at_once: int
    out: Path
    save: int = 20
    scenes: Mapping[str, Scene] = field(default_factory=dict)

    def check_painting(self) -> None:
        """An error if a mask, as the engine paints it, shows something of a patch that it should hide."""
        for defence in self.defences:
            shown = [(cover, patch) for cover in defence.covers for patch in cover.patches]
            leaking = [corner for what in shown for corner in self.surrogate.leaking_corners(*what)]
            if leaking:
                raise BrokenCertificateError(
                    f"expected every mask of {defence.name} to hide what it covers, got one that shows part of a patch "
                    f"at {tuple(leaking[0].tolist())}: a fault in the engine"
                )

    def attack(self, progress: Callable[[int], None] = lambda _: None, seconds: float = inf) -> Run:
        """Make every attempt that the file ``out`` does not have yet; return all of them.

        After so many seconds no further group of attempts is begun, but for the first one.
        """
        end = monotonic() + seconds
        with ResultsFile(self.out, self._header()) as results:
            check_begun(self.out, results.header, results.rows)
            done = {row["attempt"] for row in results.rows}
            todo = [attempt for attempt in self.attempts if attempt.key not in done]
            progress(len(self.attempts) - len(todo))
            if todo:
                self._check_clean(todo)
            for number, group in enumerate(self._groups(todo)):
                if number and monotonic() > end:
                    break
                defence = self._defence(group[0])
                attacked = self._made(group, defence)
                for place, attempt in enumerate(group):
                    self._write(results, defence, attempt, attacked, place)
                progress(len(group))
        return read_run(self.out)

    def _defence(self, attempt: Attempt) -> RuledDefence:
        """What is attacked: the defence of that name, or that for what a patch reaches in this photo."""
        (named,) = (defence for defence in self.defences if defence.name == attempt.defence)
        if not isinstance(named, PhotoDefence):
            return named
        found = named.of(self.scenes[attempt.image].threat)
        assert found is not None, "attackable photos have a class"
        return found

    def _header(self) -> Row:
        return {
            "kind": "attack",
            "certified": {"run": self.run.path.name, "digest": self.run.digest},
            "model": self.engine.describe(),
            "defences": {defence.name: defence.describe() for defence in self.defences},
            "budget": {**asdict(self.budget), "at_once": self.at_once},
            "versions": provenance(self.engine.classifier.packages),
        }

    def _groups(self, attempts: Sequence[Attempt]) -> Iterator[list[Attempt]]:
        """Attempts on one defence that are made and judged together; those that look for their place, apart.

        Those with patches of other sizes, too.
        """
        size = self.at_once * JUDGED_TOGETHER.get(self.engine.classifier.device.type, 4)

        def alike(attempt: Attempt) -> tuple[bool, Size]:
            defence = self._defence(attempt)
            return attempt.searched, attempt.patch(defence.threat, defence.image).size

        for mine in self._by_defence(attempts).values():
            for _, group in groupby(sorted(mine, key=alike), key=alike):
                listed = list(group)
                yield from (listed[start : start + size] for start in range(0, len(listed), size))

    def _by_defence(self, attempts: Sequence[Attempt]) -> dict[tuple[str, Threat], list[Attempt]]:
        """Attempts by the name of what they are on, and by its threat."""
        found: dict[tuple[str, Threat], list[Attempt]] = {}
        for attempt in attempts:
            found.setdefault((attempt.defence, self._defence(attempt).threat), []).append(attempt)
        return found

    def _made(self, group: Sequence[Attempt], defence: RuledDefence) -> Attacked:
        corners, patch = None, group[0].patch(defence.threat, defence.image)
        for attempt in group:
            check_allowed(patch, defence.threat, defence.image, attempt.side)
        if not group[0].searched:
            juries = Juries(defence.cover if isinstance(defence, MaskedDefence) else whole_cover(defence), patch)
            corners = torch.from_numpy(np.stack([self._corner(attempt, juries) for attempt in group]))
        images = torch.stack([self.photos[attempt.image] for attempt in group])
        labels = torch.tensor([attempt.label for attempt in group])
        scenes = [self.scenes[attempt.image] for attempt in group] if self.scenes else None
        job = Job(images, labels, patch, corners, scenes=scenes)
        seed = int(self.budget.chance(group[0].key).integers(1 << 31))
        return self._attack(group, defence)(job, defence_judge(self.engine, defence), seed=seed)

    def _corner(self, attempt: Attempt, juries: Juries) -> IntArray:
        """Where the patch goes; one in the photo as near to that as it can."""
        corner = attempt.corner(self.budget, juries)
        return np.array(self.scenes[attempt.image].snapped(corner.tolist())) if self.scenes else corner

    def _attack(self, group: Sequence[Attempt], defence: RuledDefence) -> PatchAttack:
        """What is tried against a defence: through its masks, or through the scores of its local evidence."""
        descent, at_once = Descent(steps=self.budget.steps), self.at_once
        goals, ranks = [attempt.goal for attempt in group], [attempt.rank for attempt in group]
        at_once *= self.budget.views if goals[0].bare else 1
        if isinstance(defence, LocalDefence):
            return EvidenceAttack(self.surrogate, defence, descent, goals=goals, ranks=ranks, at_once=at_once)
        views = self.budget.views
        return AdaptiveAttack(self.surrogate, defence, descent, goals=goals, views=views, ranks=ranks, at_once=at_once)

    def _check_clean(self, attempts: Sequence[Attempt]) -> None:
        """Refuse to attack a defence that no longer answers the clean images as the certified one did.

        One that the run does not have, with another last resort, was chosen for answering them rightly.
        """
        recorded = {row["image"]: row["defences"] for row in self.run.rows}
        for (name, _), mine in self._by_defence(attempts).items():
            labels = {attempt.image: attempt.label for attempt in mine}
            judge = defence_judge(self.engine, self._defence(mine[0]))
            for image, decision in zip(labels, judge(torch.stack([self.photos[i] for i in labels])), strict=True):
                told = recorded[image].get(name, {"label": labels[image], "alert": False})
                then = Decision(told["label"], told["alert"])
                if decision != then:
                    raise ResultsError(
                        f"expected {name} to answer the clean {image} as when it was certified ({then}), "
                        f"got {decision}: this machine computes another function"
                    )

    def _write(
        self,
        results: ResultsFile,
        defence: RuledDefence,
        attempt: Attempt,
        attacked: Attacked,
        number: int,
    ) -> None:
        decision, picture = attacked.decisions[number], attacked.pictures[number]
        patches = attacked.patches(number)
        guarantee = defence.rule.guarantee
        fell = guarantee.broken_by(decision, attempt.label)
        broken = fell and attempt.certified
        raw = picture_folder(self.out) / f"{len(results.rows) + 1:05d}.png"
        saved = fell and ((broken and guarantee.proved) or self._saved(results, defence) < self.save)
        if saved:
            save_picture(picture, patches, raw)
        results.write(
            {
                **attempt.describe(),
                **told_patches(patches, defence.threat),
                **({"photo": self.scenes[attempt.image].describe(patches[0][0])} if self.scenes else {}),
                "answer": decision.label,
                "alert": decision.alert,
                "broken": broken,
                **({} if attempt.certified else {"fell": fell}),
                "picture": raw.name if saved else None,
                "picture_sha256": pixel_digest(picture),
            }
        )

    @staticmethod
    def _saved(results: ResultsFile, defence: RuledDefence) -> int:
        return sum(row["defence"] == defence.name and row.get("picture") is not None for row in results.rows)


def told_patches(patches: Sequence[Placed], threat: Threat) -> Row:
    """As an attempts file records them: of one patch of a known size, the corner alone."""
    if isinstance(threat, Patch) and threat.count == 1:
        ((corner, _),) = patches
        return {"corner": list(corner)}
    return {"patches": [{"corner": list(corner), "size": list(size)} for corner, size in patches]}


def whole_cover(defence: LocalDefence) -> Cover:
    """One mask over the whole picture: where a patch may be, for a defence that has no masks."""
    return minimal_cover(defence.image, defence.threat, defence.image)


def strength(attempts: Run) -> str:
    """How often the same attack changed the answers of a model without a defence, in words."""
    bare = [row for row in attempts.rows if attempts.guarantee(row["defence"]) is Guarantee.NONE]
    if not bare:
        return "The undefended model was not among the rules: how strong the attack is, is not on record."
    share = 100 * sum(row["answer"] != row["label"] for row in bare) / len(bare)
    return f"The same attack changes the undefended model's label in {share:.0f} % of its attempts."


def written(attempts: Run) -> str:
    """That patches were put into the stored photos, and whether that is all that the threat allows, in words."""
    threats = [attempts.threat(defence) for defence in attempts.defences]
    early = any(isinstance(threat, PhotoPatch) and threat.before_jpeg for threat in threats)
    after = ", after they were decompressed: a patch from before that is certified and was not tried" if early else ""
    return f"All patches were written into the stored photos, which were then resized and cut{after}."


def broken_proof(attempts: Run) -> int | None:
    """The number (from 1) of the first row that broke a proved certificate; None, as the theorems say, if none did."""
    broken = (attempts.guarantee(row["defence"]).proved and row["broken"] for row in attempts.rows)
    return next((number for number, fell in enumerate(broken, start=1) if fell), None)
