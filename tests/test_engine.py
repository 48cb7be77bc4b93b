"""The engine against a plain loop: same votes, no pass twice, memory bounded."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from conftest import DEVICES, tiny_network
from looking import outputs_under, singles_of
from members import EVERY_RULE, suited
from tables import votes_under
from torch import Tensor, nn

from certmask.backends.arithmetic import compile_options
from certmask.certificate import NO_CLASS, Guarantee
from certmask.classifier import Classifier
from certmask.covers import Cover, offset_cover, patchcleanser_cover, spread_cover
from certmask.defences import MaskedDefence, examine
from certmask.engine import Engine, Finding
from certmask.errors import CertmaskError
from certmask.geometry import IntArray, Mask
from certmask.passes import NONE
from certmask.rules import JuryDetection, JuryRecovery, PatchCleanser, Published, Rule, Undefended
from certmask.rules.rule import Asking
from certmask.threat import Patch, Size
from certmask.votes import Votes, VoteStore, as_votes

PATCH = Patch(5, 4)
COVERS = (
    spread_cover(24, PATCH, (10, 9), 2),
    offset_cover(24, PATCH, (10, 9), (1, 2)),
    patchcleanser_cover(24, PATCH, 3),
)


def blank(image: Tensor, masks: Sequence[Mask], fill: Sequence[float]) -> Tensor:
    """Paint masks pixel by pixel: the independent reference."""
    out = image.clone()
    height, width = image.shape[1:]
    for mask in masks:
        for y in range(mask.top, mask.top + mask.height):
            for x in range(mask.left, mask.left + mask.width):
                if mask.wraps or (0 <= y < height and 0 <= x < width):
                    out[:, y % height, x % width] = torch.tensor(fill)
    return out


def collect(engine: Engine, cover: Cover, images: Tensor, sets: IntArray) -> list[Tensor]:
    """The same passes of every image."""
    return outputs_under(engine, cover, images, [sets] * len(images))


def random_sets(cover: Cover, count: int) -> IntArray:
    """No mask, every mask alone, and some pairs."""
    pairs = np.random.default_rng(0).integers(0, len(cover), size=(count, 2))
    return np.concatenate([[[-1, -1]], singles_of(cover).repeat(2, axis=1), pairs])


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_votes_equal_a_plain_loop_over_painted_images(cover: Cover, network: nn.Module, images: Tensor) -> None:
    classifier = Classifier(network, 24, batch=16, mean=(0.3, 0.4, 0.5))
    fill = (0.1, 0.7, 0.2)
    sets = random_sets(cover, 40)
    found = collect(Engine(classifier, [cover], fill=fill), cover, images[:3], sets)
    for image, outputs in zip(images[:3], found, strict=True):
        chosen = [() if i < 0 else (cover.masks[i], cover.masks[j]) for i, j in sets]
        painted = torch.stack([blank(image, masks, fill) for masks in chosen])
        assert torch.equal(outputs, as_votes(classifier(painted)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_same_votes_whatever_the_batch_composition(
    precision: str, device: str, network: nn.Module, images: Tensor
) -> None:
    """Bit for bit: alone, together, in cohorts, in reverse, and with another order of passes."""
    cover = COVERS[0]
    classifier = Classifier(network, 24, precision=precision, batch=16, device=device)
    engine, sets = Engine(classifier, [cover]), random_sets(cover, 60)
    together = collect(engine, cover, images, sets)
    backwards = [outputs.flip(0) for outputs in collect(engine, cover, images.flip(0), sets[::-1])][::-1]
    alone = [collect(engine, cover, image[None], sets)[0] for image in images]
    cohorts = collect(Engine(classifier, [cover], cohort=5), cover, images, sets)
    for a, b, c, d in zip(together, backwards, alone, cohorts, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
        assert torch.equal(a, d)


def test_no_pass_is_made_twice(network: nn.Module, images: Tensor) -> None:
    """Defences share votes: pairs and their mirror images, rules and covers with common masks, all computed once."""
    seen: list[int] = []
    classifier = Classifier(network, 24, batch=16)
    engine = Engine(classifier, [COVERS[0], COVERS[0]], progress=seen.append)
    defences = [
        MaskedDefence(COVERS[0], rule) for rule in (Undefended(), JuryDetection(), PatchCleanser(), JuryRecovery())
    ]
    findings = list(examine(engine, images, [0] * len(images), defences))
    assert sum(seen) == sum(finding.passes for finding in findings)
    n = len(COVERS[0])
    assert all(finding.passes <= 1 + n + n * (n - 1) // 2 for finding in findings)


def test_batches_are_full_until_the_end(network: nn.Module, images: Tensor) -> None:
    """Batches are filled across images, but for the canary: only the last few passes travel in a padded batch."""
    sizes: list[int] = []
    engine = Engine(Classifier(network, 24, batch=16), [COVERS[2]], progress=sizes.append)
    collect(engine, COVERS[2], images, singles_of(COVERS[2]))
    assert sizes[:-1] == [15] * (len(sizes) - 1)


def test_memory_is_bounded(network: nn.Module, images: Tensor) -> None:
    """With room for one image's votes, images are admitted one after the other."""
    cover = COVERS[0]
    sets = random_sets(cover, 200)

    def most_alive(engine: Engine) -> int:
        alive: set[int] = set()
        most = 0

        def program(numbers: list[int], store: VoteStore) -> Asking[list[None]]:
            nonlocal most
            alive.update(numbers)
            most = max(most, len(alive))
            votes = engine.votes(cover, store)
            yield votes.ask(votes.ballot.numbers(sets)[None])
            alive.difference_update(numbers)
            return [None] * len(numbers)

        assert len(list(engine.run(images, program))) == len(images)
        return most

    classifier = Classifier(network, 24, batch=16)
    assert most_alive(Engine(classifier, [cover], memory=1)) == 1
    assert most_alive(Engine(classifier, [cover], memory=1, cohort=6)) == 1
    assert most_alive(Engine(classifier, [cover])) > 1


@pytest.fixture(scope="module", params=[1, 5], ids=lambda cohort: f"cohort {cohort}")
def complete(request: pytest.FixtureRequest) -> tuple[Engine, Tensor, list[Votes]]:
    """An engine that takes so many pictures together, some pictures, and the votes about them under all masks."""
    cover, network = COVERS[0], tiny_network()
    images = torch.rand(12, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    engine = Engine(Classifier(network, 24, batch=16), [cover], cohort=request.param)
    n = len(cover)
    everything = np.array([(NONE, NONE), *((i, j) for j in range(n) for i in range(j + 1))], dtype=np.int64)
    found = collect(engine, cover, images, everything)
    return engine, images, [votes_under(cover, everything.tolist(), outputs) for outputs in found]


@pytest.mark.parametrize("rule", [Published(), JuryDetection(), JuryRecovery(), PatchCleanser(), PatchCleanser(True)])
def test_live_outcomes_equal_those_on_complete_votes(rule: Rule, complete: tuple[Engine, Tensor, list[Votes]]) -> None:
    """Early exits change the number of passes, never the decision or the certificate."""
    engine, images, seen = complete
    labels = engine.classifier(images).argmax(dim=1).tolist()
    live = {f.number: f.value[0] for f in examine(engine, images, labels, [MaskedDefence(COVERS[0], rule)])}
    for number, votes in enumerate(seen):
        assert rule.decide(votes).label == live[number].label
        assert rule.decide(votes).alert == live[number].alert
        assert rule.certify(votes, labels[number]).holds == live[number].certified
        assert live[number].passes <= votes.store.count


def test_a_clean_unanimous_image_costs_one_pass_per_mask() -> None:
    cover = COVERS[0]
    engine = Engine(Classifier(lambda b: torch.tensor([[0.0, 5.0]]).expand(len(b), 2), 24, batch=16), [cover])
    (finding,) = examine(engine, torch.rand(1, 3, 24, 24), None, [MaskedDefence(cover, JuryRecovery())])
    assert finding.value[0].passes == finding.passes == len(cover)


def test_certification_stops_when_it_is_decided() -> None:
    """A single mask that votes wrong ends the certificate before any pair is computed."""
    cover = COVERS[0]
    engine = Engine(Classifier(lambda b: torch.tensor([[0.0, 5.0]]).expand(len(b), 2), 24, batch=16), [cover])
    (finding,) = examine(engine, torch.rand(1, 3, 24, 24), [0], [MaskedDefence(cover, JuryRecovery())])
    assert finding.value[0].certified is False
    assert finding.passes == len(cover)


@pytest.mark.parametrize("fill", [(0.1, 0.2), (2.0, 0.0, 0.0), (float("nan"), 0.0, 0.0)])
def test_bad_fill(fill: tuple[float, float, float], network: nn.Module) -> None:
    with pytest.raises(CertmaskError, match=r"expected .*got"):
        Engine(Classifier(network, 24), COVERS, fill=fill)


@pytest.mark.parametrize("size", [(24, 23), (32, 32)])
def test_a_cover_of_another_image_size_is_refused(size: Size, network: nn.Module) -> None:
    with pytest.raises(CertmaskError, match=r"expected a cover of the model's input 24×24, got one for"):
        Engine(Classifier(network, 24), [spread_cover(size, PATCH, 10)])


def test_labels_outside_the_classes_are_refused(network: nn.Module, images: Tensor) -> None:
    engine = Engine(Classifier(network, 24), COVERS)
    with pytest.raises(CertmaskError, match="expected labels from 0 to 4, got 5"):
        list(examine(engine, images, [5] * len(images), [MaskedDefence(COVERS[0], JuryDetection())]))


def test_one_compilation_serves_every_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[object] = []

    def counting(graph: torch.fx.GraphModule, _: list[Tensor]) -> object:
        graphs.append(graph)
        return graph.forward

    real = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda step, *, dynamic, options: real(step, backend=counting, dynamic=dynamic)
    )
    torch.compiler.reset()
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 4))
    classifier = Classifier(model, 24, compiled=True, batch=4, precision="fp32")
    images = torch.rand(2, 3, 24, 24)
    plain = Classifier(model, 24, compiled=False, batch=4, precision="fp32")
    for cover in COVERS:
        sets = random_sets(cover, 5)
        stores = [collect(Engine(c, [cover]), cover, images, sets) for c in (classifier, plain)]
        for compiled, reference in zip(*stores, strict=True):
            assert torch.equal(compiled, reference)
    assert classifier.compiled
    assert len(graphs) == 1


def test_kernels_are_not_chosen_by_timing_them() -> None:
    """torch is asked not to, the header says so, and a torch that cannot is found out."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 4))
    classifier = Classifier(model, 24, compiled=True, batch=4, precision="fp32")
    with mock.patch("torch.compile") as compiling:
        Engine(classifier, [COVERS[0]])
    assert compiling.call_args.kwargs == {"dynamic": False, "options": {"deterministic": True}}
    assert classifier.describe()["compile_options"] == {"deterministic": True}
    assert "compile_options" not in Classifier(model, 24, batch=4).describe()
    with mock.patch("torch._inductor.config", SimpleNamespace()):
        assert compile_options() == {}


class Overflowing(nn.Module):
    """Votes for class 1; a pixel brighter than any in the picture makes its logits NaN."""

    def forward(self, images: Tensor) -> Tensor:
        big = torch.exp(300 * images.amax(dim=(1, 2, 3)) - 200)
        return torch.stack([big - big, 1 + (big - big)], dim=1)


@pytest.mark.parametrize("rule", [JuryRecovery("aligned"), PatchCleanser(), JuryDetection(), Published()], ids=repr)
def test_a_patch_that_makes_the_network_overflow_breaks_nothing(rule: Rule) -> None:
    """Whatever the patch shows, NaN included: certified pictures are answered rightly, or alerted for detection."""
    cover = spread_cover(24, PATCH, (10, 9), 2)
    engine = Engine(Classifier(Overflowing(), 24, batch=8, precision="fp32"), [cover])
    defence = MaskedDefence(cover, rule)
    clean = torch.full((2, 3, 24, 24), 0.3)
    findings = examine(engine, clean, [1, 1], [defence])
    assert all(finding.value[0].certified for finding in findings)
    patched = clean.clone()
    patched[0, :, 3:8, 3:7] = 1.0
    for finding in examine(engine, patched, None, [defence]):
        (outcome,) = finding.value
        if rule.guarantee is Guarantee.RECOVERY or finding.number == 1:
            assert outcome.right(1)
        elif rule.guarantee is Guarantee.DETECTION:
            assert outcome.right(1) or outcome.alert


@pytest.mark.parametrize("rule", EVERY_RULE, ids=repr)
def test_a_picture_without_any_vote_hurts_only_itself(rule: Rule) -> None:
    """No class, an alert, no certificate; its neighbour in the cohort gets answer and certificate."""
    cover = suited(rule, spread_cover(24, PATCH, (10, 9), 2))
    engine = Engine(Classifier(Overflowing(), 24, batch=8, precision="fp32"), [cover], cohort=2)
    pictures = torch.stack([torch.ones(3, 24, 24), torch.full((3, 24, 24), 0.3)])
    for labels in (None, [1, 1]):
        lost, found = sorted(examine(engine, pictures, labels, [MaskedDefence(cover, rule)]), key=lambda f: f.number)
        assert (lost.value[0].label, lost.value[0].alert, lost.silent) == (NO_CLASS, True, lost.votes)
        assert not lost.value[0].certified
        assert (found.value[0].label, found.silent) == (1, 0)
        assert found.value[0].certified or labels is None or rule.guarantee is Guarantee.NONE


@pytest.mark.parametrize("rule", [rule for rule in EVERY_RULE if rule.guarantee is not Guarantee.NONE], ids=repr)
def test_a_silent_vote_is_none_for_the_first_class(rule: Rule) -> None:
    """Where some masks say nothing, the answer is what the others say, not class 0."""
    cover = suited(rule, spread_cover(24, PATCH, (10, 9), 2))
    engine = Engine(Classifier(Overflowing(), 24, batch=8, precision="fp32"), [cover])
    patched = torch.full((1, 3, 24, 24), 0.3)
    patched[:, :, 10:15, 10:14] = 1.0
    (finding,) = examine(engine, patched, None, [MaskedDefence(cover, rule)])
    assert 0 < finding.silent < finding.votes
    assert finding.value[0].label == 1


class ShapeBound:
    """Answers otherwise in batches of another size; runs out of memory for large ones after so many calls."""

    def __init__(self, patience: int) -> None:
        self.patience = patience

    def __call__(self, batch: Tensor) -> Tensor:
        self.patience -= 1
        if len(batch) > 8 and self.patience < 0:
            raise torch.OutOfMemoryError("no memory")
        return (30 + 1e-3 * len(batch)) * batch.mean(dim=(2, 3))


def all_votes(engine: Engine, cover: Cover, images: Tensor) -> dict[int, Finding[Tensor]]:
    """Every vote about every image, first of single masks, then of pairs."""

    def program(numbers: list[int], store: VoteStore) -> Asking[list[Tensor]]:
        votes = engine.votes(cover, store)
        yield votes.ask(votes.ballot.singles[None])
        yield votes.ask(votes.ballot.pairs(*np.triu_indices(len(cover), k=1))[None])
        return [store.cast(place)[1].clone() for place in range(len(numbers))]

    return {finding.number: finding for finding in engine.run(images, program)}


@pytest.mark.parametrize("patience", [20, 23, 31])
def test_where_memory_runs_out_no_image_has_votes_from_two_shapes(patience: int, images: Tensor) -> None:
    """What is finished keeps its shape and says so; what is not starts again in the smaller one."""
    cover = patchcleanser_cover(24, PATCH, 3)
    cramped = Engine(Classifier(ShapeBound(patience), 24, batch=16), [cover], cohort=2)
    whole = {batch: all_votes(Engine(Classifier(ShapeBound(10**9), 24, batch=batch), [cover]), cover, images)
             for batch in (8, 16)}  # fmt: skip
    found = all_votes(cramped, cover, images)
    assert {finding.batch for finding in found.values()} == {8, 16}
    for number, finding in found.items():
        assert torch.equal(finding.value, whole[finding.batch][number].value)
        assert not torch.equal(finding.value, whole[24 - finding.batch][number].value)
