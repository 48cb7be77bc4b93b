"""Attacks on small real networks: they work, they stay within their patch, and they cannot grade themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch
from conftest import tiny_network
from hypothesis import given, settings
from hypothesis import strategies as st
from looking import outputs_under
from members import suited
from test_worst_case import UnanimousMajority
from torch import Tensor, nn

from certmask.attacks import (
    ATTACKS,
    AdaptiveAttack,
    Attack,
    Descent,
    EvidenceAttack,
    Job,
    Needs,
    PatchAttack,
    RandomSearch,
    Surrogate,
    UniversalPatch,
    classifier_judge,
    defence_judge,
)
from certmask.attacks.attempts import PICKED, pick_corner
from certmask.attacks.goals import (
    BARE_PICTURE,
    DOUBT,
    DOUBT_FIRST,
    EXACTLY_K,
    GOALS,
    HIDDEN,
    KEEP,
    LAST_RESORT,
    LEVEL_GOALS,
    SETTLE,
    SPARE_ONE,
    TURN,
    TURN_ALL,
    WIN_DUELS,
    Goal,
    Juries,
    Places,
    goals_against,
    masked_views,
)
from certmask.attacks.levels import levels_of, settling_logits
from certmask.certificate import Decision, Guarantee
from certmask.classifier import Classifier
from certmask.covers import Cover, offset_cover, replicated_cover, spread_cover, zoom_cover
from certmask.defences import LocalDefence, MaskedDefence, examine
from certmask.engine import Engine
from certmask.errors import AttackError, CertmaskError
from certmask.evidence import LocalClassifier, RobustMasking
from certmask.identity import weights_digest
from certmask.rules import (
    RULES,
    JuryDetection,
    JuryHiCert,
    JuryRecovery,
    MinorityReports,
    PatchCleanser,
    Published,
    Rule,
)
from certmask.threat import Patch

PATCH = Patch(7, 7)
SPREAD = spread_cover(24, Patch(6, 6), 12, 2)
WRAPPED = offset_cover(24, Patch(5, 5), 15, (1, 2))
REPLICATED = replicated_cover(24, Patch(5, 5), 15, (1, 2))
COVERS = (SPREAD, WRAPPED, REPLICATED)
ZOOM = zoom_cover(24, Patch(6, 6), (2, 3, 6))
THRESHOLD = 0.3


@pytest.fixture
def classifier(network: nn.Module) -> Classifier:
    return Classifier(network, 24, batch=16, precision="fp32", mean=(0.4, 0.5, 0.6))


@pytest.fixture
def job(classifier: Classifier, images: Tensor) -> Job:
    """Images with the network's own answers as true labels."""
    return Job(images, classifier(images).argmax(dim=1), PATCH)


# ---------------------------------------------------------------------------------------- attacks on a classifier


def test_the_gradient_attack_fools_a_network_and_noise_does_not(classifier: Classifier, job: Job) -> None:
    judge = classifier_judge(classifier)
    attacked = PatchAttack(Surrogate(classifier), Descent(steps=30))(job, judge)
    assert attacked.fooled(job.labels).float().mean() >= 0.75
    noise = Returning(lambda j, c: torch.rand(len(j), 3, *PATCH.size, generator=torch.Generator().manual_seed(c)))
    assert noise(job, judge).fooled(job.labels).float().mean() <= 0.25


def test_a_targeted_attack_reaches_its_targets(classifier: Classifier, job: Job) -> None:
    targets = (job.labels + 1) % 5
    aimed = Job(job.images, job.labels, Patch(12, 12), targets=targets)
    attacked = PatchAttack(Surrogate(classifier), Descent(steps=40), restarts=2)(aimed, classifier_judge(classifier))
    reached = sum(d.label == t for d, t in zip(attacked.decisions, targets.tolist(), strict=True))
    assert reached >= 9


def test_restarts_never_lose_to_a_single_try(classifier: Classifier, job: Job) -> None:
    attack = PatchAttack(Surrogate(classifier), Descent(steps=12), restarts=3)
    many = attack(job, classifier_judge(classifier)).fooled(job.labels).sum()
    one = PatchAttack(Surrogate(classifier), Descent(steps=12))(job, classifier_judge(classifier))
    assert many >= one.fooled(job.labels).sum() - 1


def test_a_search_finds_the_only_place_that_matters(images: Tensor) -> None:
    """A network that looks at nothing but its lower right corner."""

    def look(batch: Tensor) -> Tensor:
        seen = batch[:, :, 16:, 16:].mean(dim=(1, 2, 3))
        return torch.stack([8 * seen, 8 - 8 * seen], dim=1)

    class Peephole(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            return look(batch)

    classifier = Classifier(Peephole(), 24, batch=4, precision="fp32")
    job = Job(images[:4], classifier(images[:4]).argmax(dim=1), Patch(8, 8))
    attacked = PatchAttack(Surrogate(classifier), Descent(steps=10))(job, classifier_judge(classifier))
    assert (attacked.corners >= 9).all()
    assert attacked.fooled(job.labels).all()


def test_a_universal_patch_is_one_patch(classifier: Classifier, images: Tensor) -> None:
    """Trained on one class, put anywhere: the same pixels on every image, and most labels change."""
    labels = classifier(images).argmax(dim=1)
    common = int(labels.mode().values)
    job = Job(images[labels == common], labels[labels == common], Patch(12, 12))
    attack = UniversalPatch(Surrogate(classifier), Descent(steps=80))
    attacked = attack(job, classifier_judge(classifier))
    cuts = [p[:, t : t + 12, x : x + 12] for p, (t, x) in zip(attacked.pictures, attacked.corners, strict=True)]
    assert all(torch.equal(cut, cuts[0]) for cut in cuts)
    assert len(job) >= 3
    assert attacked.fooled(job.labels).float().mean() >= 0.5
    assert attack.train(job).shape == (3, 12, 12)


@pytest.mark.parametrize("corners", [None, torch.zeros(12, 2, dtype=torch.long)])
def test_random_search_needs_scores_only(network: nn.Module, images: Tensor, corners: Tensor | None) -> None:
    """A callable without gradients: numpy in between."""

    def scores(batch: Tensor) -> Tensor:
        return torch.from_numpy(network(batch).detach().numpy().round(3))

    classifier = Classifier(scores, 24, batch=16)
    job = Job(images, classifier(images).argmax(dim=1), Patch(9, 9), corners)
    attacked = RandomSearch(classifier, queries=150)(job, classifier_judge(classifier))
    assert attacked.fooled(job.labels).float().mean() >= 0.4
    with pytest.raises(AttackError, match=r"expected a torch network .* random search"):
        Surrogate(classifier)


def test_random_search_for_a_target(classifier: Classifier, job: Job) -> None:
    """The target's probability never falls below where it started."""
    targets = (job.labels + 2) % 5
    aimed = Job(job.images, job.labels, PATCH, torch.full((12, 2), 3), targets)
    attacked = [RandomSearch(classifier, queries=n)(aimed, classifier_judge(classifier)) for n in (1, 60)]
    before, after = (classifier(a.pictures).gather(1, targets[:, None]) for a in attacked)
    assert (after >= before - 0.02).all()
    assert (after > before).any()


# --------------------------------------------------------------------------------- what every row of the table must do


def built(name: str, classifier: Classifier) -> Attack:
    """An attack from its row, with its own defaults, against a defence where it needs one."""
    entry = ATTACKS[name]
    surrogate = Surrogate(classifier, [SPREAD])
    if isinstance(classifier, LocalClassifier):
        return EvidenceAttack(surrogate, LocalDefence(RobustMasking(SPREAD.patch), classifier.fields))
    given = {
        Needs.SCORES: (classifier,),
        Needs.GRADIENTS: (surrogate,),
        Needs.DEFENCE: (surrogate, MaskedDefence(SPREAD, Published())),
    }
    return entry.attack(*given[entry.needs])


@pytest.fixture
def victim(name: str, classifier: Classifier) -> Classifier:
    return victim_of(name, classifier)


def victim_of(name: str, classifier: Classifier) -> Classifier:
    """What an attack of the table is for: a network, or one with cells."""
    if ATTACKS[name].needs is not Needs.EVIDENCE:
        return classifier
    torch.manual_seed(0)
    cells = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 5, 1))
    return LocalClassifier(cells.eval(), 24, batch=16, precision="fp32", mean=(0.4, 0.5, 0.6))


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_of_the_table_beats_noise(name: str, victim: Classifier, images: Tensor) -> None:
    """With its own defaults, on its own places, it stays within its patch, and its seed says what it does."""
    classifier = victim
    judge, labels = classifier_judge(classifier), classifier(images).argmax(dim=1)
    common = labels == labels.mode().values
    job = Job(images[common], labels[common], SPREAD.patch)
    attacked, again = (built(name, classifier)(job, judge, seed=1) for _ in range(2))
    assert torch.equal(attacked.pictures, again.pictures)
    lead = [_lead(classifier(pictures), job.labels) for pictures in (attacked.pictures, noisy(job))]
    assert (lead[0] < lead[1]).float().mean() > 0.5


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_of_the_table_keeps_to_a_given_corner(name: str, victim: Classifier, job: Job) -> None:
    classifier = victim
    corners = torch.tensor([[3, 4], [18, 0]])
    placed = Job(job.images[:2], job.labels[:2], SPREAD.patch, corners)
    assert torch.equal(built(name, classifier)(placed, classifier_judge(classifier)).corners, corners)
    with pytest.raises(AttackError, match="expected labels from 0 to 4, got 5"):
        built(name, classifier)(Job(placed.images, torch.tensor([5, 0]), SPREAD.patch), classifier_judge(classifier))


def test_every_row_says_what_the_attack_is() -> None:
    assert {entry.attack for entry in ATTACKS.values()} == attacks_of(Attack.__subclasses__())
    for entry in ATTACKS.values():
        assert entry.attack.__doc__
        assert entry.idea.endswith(".")


def attacks_of(kinds: Iterable[type[Attack]]) -> set[type[Attack]]:
    """Those that the package defines, and all that derive from them."""
    own = {kind for kind in kinds if kind.__module__.startswith("certmask.")}
    return own.union(*(attacks_of(kind.__subclasses__()) for kind in own))


def noisy(job: Job) -> Tensor:
    patches = torch.rand(len(job), 3, *job.patch.size, generator=torch.Generator().manual_seed(0))
    pictures = job.images.clone()
    pictures[:, :, 9:15, 9:15] = patches
    return pictures


def _lead(scores: Tensor, labels: Tensor) -> Tensor:
    """By how much the true class is ahead of the best other."""
    others = scores.scatter(1, labels[:, None], -1.0).amax(dim=1)
    return scores.gather(1, labels[:, None])[:, 0] - others


# ------------------------------------------------------------------------------------------- no attack grades itself


class Returning(Attack):
    """Puts whatever it is told to at the upper left; ``spoil`` may change the result."""

    def __init__(self, patches: Callable[[Job, int], Tensor], spoil: Callable[[Tensor, Tensor], object] | None = None):
        self.patches, self.spoil = patches, spoil

    def run(self, job: Job, seed: int) -> tuple[Tensor, Tensor]:
        corners = torch.zeros(len(job), 2, dtype=torch.long) if job.corners is None else job.corners.clone()
        pictures = job.images.clone()
        height, width = job.patch.size
        for picture, patch, (top, left) in zip(pictures, self.patches(job, seed), corners.tolist(), strict=True):
            picture[:, top : top + height, left : left + width] = patch
        if self.spoil:
            spoiled = self.spoil(pictures, corners)
            if isinstance(spoiled, tuple):
                return spoiled
        return pictures, corners


def grey(job: Job, seed: int) -> Tensor:
    return torch.full((len(job), 3, *job.patch.size), 0.5)


CHEATS: dict[str, Callable[[Tensor, Tensor], object]] = {
    "outside": lambda pictures, corners: pictures[3, 1].__setitem__((20, 20), 0.0),
    "one pixel below the patch": lambda pictures, corners: pictures[0, 0].__setitem__((7, 0), 0.77),
    "brighter than white": lambda pictures, corners: pictures.__setitem__((0, 0, 0, 0), 1.5),
    "not a number": lambda pictures, corners: pictures.__setitem__((0, 0, 0, 0), float("nan")),
    "corner outside": lambda pictures, corners: (pictures, corners + 18),
    "negative corner": lambda pictures, corners: (pictures, corners - 1),
    "another place": lambda pictures, corners: (pictures, corners + 1),
    "fewer pictures": lambda pictures, corners: (pictures[1:], corners),
    "fewer corners": lambda pictures, corners: (pictures, corners[1:]),
    "halved size": lambda pictures, corners: (pictures[:, :, ::2, ::2], corners),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheating_attack_is_caught(cheat: str, job: Job) -> None:
    def never(pictures: Tensor) -> list[Decision]:
        raise AssertionError("a cheat was judged")

    with pytest.raises(CertmaskError, match=r"expected .*got"):
        Returning(grey, CHEATS[cheat])(job, never)


def test_an_honest_attack_is_judged_on_eight_bits(job: Job) -> None:
    """What is judged is what a file would hold, whatever values the attack returned; outside, nothing is rounded."""
    seen: list[Tensor] = []

    def judge(pictures: Tensor) -> list[Decision]:
        seen.append(pictures)
        return [Decision(0)] * len(pictures)

    attacked = Returning(lambda j, s: torch.full((len(j), 3, 7, 7), 0.3337))(job, judge)
    assert torch.equal(seen[0], attacked.pictures)
    assert torch.equal(attacked.pictures[:, :, :7, :7], torch.full((12, 3, 7, 7), 85 / 255))
    assert torch.equal(attacked.pictures[:, :, 7:], job.images[:, :, 7:])


def test_the_given_corner_is_kept_to(job: Job) -> None:
    placed = Job(job.images, job.labels, PATCH, torch.full((12, 2), 5))
    with pytest.raises(AttackError, match="expected the patch at the corner that was given"):
        Returning(grey, lambda pictures, corners: (pictures, corners - 5))(placed, lambda p: [])
    with pytest.raises(AttackError, match="expected 12 decisions from the judge, got 0"):
        Returning(grey)(placed, lambda p: [])


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"images": torch.zeros(0, 3, 24, 24)}, "at least one image"),
        ({"images": torch.zeros(3, 24, 24)}, "at least one image"),
        ({"images": torch.full((12, 3, 24, 24), 2.0)}, "2"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, r"\[3\]"),
        ({"labels": torch.zeros(12)}, "whole-number"),
        ({"labels": torch.full((12,), -1)}, "at least 0"),
        ({"patch": Patch(25, 3)}, "25×3"),
        ({"corners": torch.full((12, 2), 18)}, "outside"),
        ({"corners": torch.full((12, 2), -1)}, "outside"),
        ({"corners": torch.zeros(12, 2)}, "whole-number"),
        ({"targets": "labels"}, "differ from the true labels"),
    ],
)
def test_jobs_that_make_no_sense(change: dict[str, object], got: str, job: Job) -> None:
    values: dict[str, object] = {"images": job.images, "labels": job.labels, "patch": PATCH, **change}
    values = {name: job.labels if value == "labels" else value for name, value in values.items() if value is not None}
    with pytest.raises(CertmaskError, match=rf"expected .*{got}"):
        Returning(grey)(Job(**values), lambda p: [])  # type: ignore[arg-type]


@settings(max_examples=12, deadline=None)
@given(
    size=st.tuples(st.integers(1, 24), st.integers(1, 24)),
    where=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    seed=st.integers(0, 1000),
)
def test_a_patch_stays_in_its_rectangle_and_in_range(
    size: tuple[int, int], where: tuple[float, float], seed: int
) -> None:
    classifier = Classifier(tiny_network(seed=seed), 24, batch=4, precision="fp32")
    images = torch.rand(3, 3, 24, 24, generator=torch.Generator().manual_seed(seed))
    patch = Patch(*size)
    corner = [round(share * (positions - 1)) for share, positions in zip(where, patch.positions((24, 24)), strict=True)]
    job = Job(images, torch.tensor([0, 1, 2]), patch, torch.tensor([corner] * 3))
    attacked = PatchAttack(Surrogate(classifier), Descent(steps=3))(job, classifier_judge(classifier), seed=seed)
    changed = (attacked.pictures != images).any(dim=1)
    changed[:, corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]] = False
    assert not changed.any()
    assert attacked.pictures.min() >= 0
    assert attacked.pictures.max() <= 1


def test_the_classifier_is_never_touched(classifier: Classifier, network: nn.Module, job: Job) -> None:
    """Its weights, its mode, its gradients' flags and the user's own network are as they were."""
    network.train()
    before = weights_digest(classifier.model), classifier(job.images), weights_digest(network)  # type: ignore[arg-type]
    PatchAttack(Surrogate(classifier, network=network), Descent(steps=3))(job, classifier_judge(classifier))
    assert before[0] == weights_digest(classifier.model)  # type: ignore[arg-type]
    assert torch.equal(before[1], classifier(job.images))
    assert before[2] == weights_digest(network)
    assert network.training
    assert all(p.requires_grad for p in network.parameters())
    assert all(p.grad is None for p in network.parameters())


def test_a_surrogate_with_other_weights_is_refused(classifier: Classifier) -> None:
    with pytest.raises(AttackError, match=r"expected the network that .* got other weights"):
        Surrogate(classifier, network=tiny_network(seed=5))


def test_too_little_memory_makes_smaller_batches(
    classifier: Classifier, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack, sizes = PatchAttack(Surrogate(classifier), Descent(steps=2)), []
    part = PatchAttack._part

    def small(self: PatchAttack, job: Job, numbers: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        sizes.append(len(numbers))
        if len(numbers) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return part(self, job, numbers, seed)

    monkeypatch.setattr(PatchAttack, "_part", small)
    assert len(attack(job, classifier_judge(classifier)).decisions) == 12
    assert max(s for s in sizes if s <= 3) == 3
    monkeypatch.setattr(PatchAttack, "_part", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("none")))
    with pytest.raises(AttackError, match="expected memory for one attempt"):
        attack(job, classifier_judge(classifier))


@pytest.mark.parametrize("options", [{"restarts": 0}, {"at_once": 0}, {"goals": ()}, {"ranks": ()}])
def test_budgets_of_nothing(options: dict[str, object], classifier: Classifier) -> None:
    with pytest.raises(AttackError, match=r"expected at least 1 .*got"):
        PatchAttack(Surrogate(classifier), **options)  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="got 0"):
        Descent(steps=0)
    with pytest.raises(AttackError, match="got 0"):
        RandomSearch(classifier, queries=0)


# ------------------------------------------------------------------------------- what a patch can reach in a defence


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_the_surrogate_sees_what_the_engine_sees(cover: Cover, classifier: Classifier, images: Tensor) -> None:
    """Same masks, same fill, same normalization: the same probabilities but for rounding."""
    fill = (0.1, 0.9, 0.3)
    engine, surrogate = Engine(classifier, COVERS, fill=fill), Surrogate(classifier, COVERS, fill=fill)
    passes = np.random.default_rng(0).integers(0, len(cover), size=(20, 2))
    passes[0] = -1
    found = outputs_under(engine, cover, images[:3], [passes] * 3)
    pairs = torch.from_numpy(np.append(surrogate.numbers(cover), -1)[passes])
    seen = surrogate(images[:3], pairs.expand(3, -1, -1)).softmax(dim=2)
    for number, outputs in enumerate(found):
        assert torch.allclose(seen[number], outputs, atol=1e-5)


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_juries_by_counting_pixels(cover: Cover) -> None:
    rows, columns = cover.patch.positions(cover.image)
    corners = np.array([(y, x) for y in range(0, rows, 3) for x in range(columns)])
    members, hidden = Juries(cover).members(corners), Juries(cover).hidden(corners)
    height, width = cover.patch.size
    for number, mask in enumerate(cover.masks):
        painted = np.zeros(cover.image, dtype=int)
        for low, high in mask.rows(cover.image):
            for start, stop in mask.columns(cover.image):
                painted[low:high, start:stop] = 1
        counted = [painted[y : y + height, x : x + width].sum() for y, x in corners]
        assert hidden[:, number].tolist() == counted
        assert members[:, number].tolist() == [mask.covers((y, x), cover.patch, cover.image) for y, x in corners]


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_views_never_show_what_the_patch_cannot_change(cover: Cover) -> None:
    juries, chance = Juries(cover), np.random.default_rng(0)
    corners = np.stack([pick_corner("random", juries, chance) for _ in range(20)])
    places = Places(juries, corners, np.zeros((20, len(cover)), dtype=bool))
    wishes, numbers = WIN_DUELS.wish(places, chance), np.arange(len(cover))
    defence = MaskedDefence(cover, JuryRecovery("aligned" if cover.grids else "all"))
    views = masked_views(defence, places, numbers, wishes, [WIN_DUELS] * 20, 6, torch.device("cpu"))
    members, pairs_seen = juries.members(corners), 0
    for seed in range(10):
        pairs, wanted, _ = views.draw(torch.Generator().manual_seed(seed))
        for row in range(20):
            for (i, j), wish in zip(pairs[row].tolist(), wanted[row].tolist(), strict=True):
                assert (wish == HIDDEN) == bool(members[row, i] or members[row, j])
                assert i == j or not cover.grids or any({i, j} <= set(grid) for grid in cover.grids)
                pairs_seen += i != j
    assert pairs_seen > 0


@pytest.mark.parametrize("cover", COVERS, ids=str)
def test_wishes(cover: Cover) -> None:
    juries, chance = Juries(cover), np.random.default_rng(0)
    corners = np.stack([pick_corner("random", juries, chance) for _ in range(30)])
    members, copies = juries.members(corners), np.array(cover.copies)
    for goal in (TURN_ALL, SPARE_ONE, EXACTLY_K):
        wishes = goal.wish(Places(juries, corners, np.zeros_like(members)), chance)
        assert ((wishes == HIDDEN) == members).all()
        if goal is SPARE_ONE:
            assert ((wishes == KEEP).sum(axis=1) == 1).all()
        if goal is EXACTLY_K:
            assert (((wishes == TURN) @ copies) == cover.k).all()


def test_wishes_about_levels() -> None:
    """What hides the patch is out of reach; coarse votes are turned alone, or doubted beside fine ones to turn."""
    juries, chance = Juries(ZOOM), np.random.default_rng(0)
    corners = np.stack([pick_corner("random", juries, chance) for _ in range(30)])
    members, levels = juries.members(corners), levels_of(ZOOM)
    assert np.bincount(levels).tolist() == [len(level) for level in ZOOM.levels] == [4, 9, 25]
    places = Places(juries, corners, np.zeros_like(members))
    settle, doubt = (goal.wish(places, chance) for goal in (SETTLE, DOUBT_FIRST))
    assert ((settle == TURN) == (~members & (levels < 2))).all()
    assert ((settle == HIDDEN) == (members | (levels == 2))).all()
    assert ((doubt == DOUBT) == (~members & (levels < 2))).all()
    assert ((doubt == TURN) == (~members & (levels == 2))).all()
    leaking = Places(juries, corners, members)
    for goal in (SETTLE, DOUBT_FIRST):
        assert (goal.wish(leaking, chance)[members] == TURN).all()


def test_views_of_levels_are_shared_out_and_never_mixed() -> None:
    """Few coarse masks are looked through as often as many fine ones, and both masks of a pair are of one level."""
    juries, chance = Juries(ZOOM), np.random.default_rng(0)
    corners = np.stack([pick_corner("random", juries, chance) for _ in range(20)])
    places = Places(juries, corners, np.zeros((20, len(ZOOM)), dtype=bool))
    wishes, numbers = LAST_RESORT.wish(places, chance), np.arange(len(ZOOM))
    defence = MaskedDefence(ZOOM, JuryRecovery("all", thresholds=(0.3, 0.6), claim_thresholds=(0.1, 0.2)))
    views = masked_views(defence, places, numbers, wishes, [LAST_RESORT] * 20, 4, torch.device("cpu"))
    drawn = [views.draw(torch.Generator().manual_seed(seed)) for seed in range(40)]
    pairs = torch.cat([one.sets.flatten(0, 1) for one in drawn]).numpy()
    wanted, bars = (torch.cat([getattr(one, key).flatten() for one in drawn]).numpy() for key in ("wanted", "bars"))
    levels = np.append(levels_of(ZOOM), -1)
    assert (wanted == TURN).all()
    assert (levels[pairs[:, 0]] == levels[pairs[:, 1]]).all()
    assert (pairs[:, 0] != pairs[:, 1]).any()
    shares = np.bincount(levels[pairs[:, 0]] + 1) / len(pairs)
    assert (shares > 0.15).all()
    expected = 2 * np.arctanh([[0.0, 0.1, 0.2, 0.0], [0.0, 0.3, 0.6, 0.0]])
    assert np.allclose(bars, expected[(pairs[:, 0] != pairs[:, 1]).astype(int), levels[pairs[:, 0]] + 1])


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=6), st.floats(0, 1.5))
def test_logits_that_settle_nothing(logits: list[float], threshold: float) -> None:
    """A vote that leads by no more logits than that does not lead by more than the threshold, either."""
    bar = float(settling_logits(JuryDetection(thresholds=threshold), ZOOM)[0, 0])
    votes = torch.tensor(logits, dtype=torch.float64)
    first, second = votes.topk(2).values.tolist()
    likely, next_likely = votes.softmax(dim=0).topk(2).values.tolist()
    assert likely - next_likely <= threshold + 1e-6 or first - second > bar - 1e-6
    odds = JuryDetection("mean log-probability", thresholds=threshold)
    assert (settling_logits(odds, ZOOM)[:, 0] == np.float32(threshold)).all()
    assert (settling_logits(odds, ZOOM)[:, -1] == 0).all()
    assert not settling_logits(PatchCleanser(), ZOOM).any()
    last = settling_logits(JuryHiCert(threshold=0.5), ZOOM)[0, -1]
    assert 1 / (1 + np.exp(-last)) - 1 / (1 + np.exp(last)) == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("goal", [SETTLE, DOUBT_FIRST, LAST_RESORT], ids=lambda goal: goal.name)
def test_goals_about_levels_are_reached(goal: Goal) -> None:
    """Coarse votes for another class beyond their threshold, or none beyond it; more of either than before."""
    louder = nn.BatchNorm1d(5)
    nn.init.constant_(louder.weight, 20.0)
    sharp = nn.Sequential(tiny_network(seed=1), louder).eval()
    classifier, images = Classifier(sharp, 24, batch=16, precision="fp32"), smooth_images(12)
    defence, engine = MaskedDefence(ZOOM, JuryDetection(thresholds=THRESHOLD)), Engine(classifier, [ZOOM])
    labels, corners = classifier(images).argmax(dim=1), torch.full((12, 2), 9)
    attack = AdaptiveAttack(Surrogate(classifier, engine=engine), defence, Descent(steps=30), goals=[goal], views=12)
    attacked = attack(Job(images, labels, ZOOM.patch, corners), defence_judge(engine, defence))
    within = np.flatnonzero(~Juries(ZOOM).members(np.array([[9, 9]]))[0] & (levels_of(ZOOM) < 2))
    masks = np.array([[-1]]) if goal is LAST_RESORT else within[:, None]
    reached = []
    for pictures in (images, attacked.pictures):
        votes = torch.stack(outputs_under(engine, ZOOM, pictures, [masks] * 12))
        best = votes.topk(2, dim=2)
        sure = best.values[..., 0] - best.values[..., 1] > THRESHOLD
        wrong = best.indices[..., 0] != labels[:, None]
        reached.append(int((~sure if goal is DOUBT_FIRST else wrong & sure if goal is SETTLE else wrong).sum()))
    assert reached[1] > reached[0]


def test_every_rule_has_goals() -> None:
    assert GOALS.keys() == RULES.keys()
    for cover in (SPREAD, ZOOM):
        assert all(goals_against(MaskedDefence(suited(rule(), cover), rule())) for rule in RULES.values())
    assert len({goal.bare for goal in goals_against(MaskedDefence(SPREAD, UnanimousMajority()))}) == 1
    for name, levelled in LEVEL_GOALS.items():
        known = {cover: goals_against(MaskedDefence(cover, RULES[name]())) for cover in (SPREAD, ZOOM)}
        assert known[ZOOM] == (*known[SPREAD], *levelled)
        assert levelled


def test_a_rule_without_a_row_is_attacked_in_every_way() -> None:
    """Every goal against a rule that has a row, but for the one that looks at no mask."""
    known = {goal for goals in GOALS.values() for goal in goals}
    assert set(goals_against(MaskedDefence(SPREAD, UnanimousMajority()))) == known - {BARE_PICTURE}


@pytest.mark.parametrize("cover", COVERS, ids=str)
@pytest.mark.parametrize("place", PICKED)
def test_places(place: str, cover: Cover) -> None:
    juries, chance = Juries(cover), np.random.default_rng(0)
    corners = np.stack([pick_corner(place, juries, chance) for _ in range(60)])
    last = np.array(cover.patch.positions(cover.image)) - 1
    assert (corners >= 0).all()
    assert (corners <= last).all()
    assert len({tuple(c) for c in corners.tolist()}) > 3
    on_border = (corners == 0) | (corners == last)
    if place == "lowest fold":
        assert (juries.folds(corners) == cover.min_fold).all()
    if place == "border":
        assert on_border.any(axis=1).all()
        assert on_border.all(axis=1).any()
    if place == "edge":
        height, width = cover.patch.size
        nearly = {height * width - height, height * width - width}
        missed_by_one = [bool(nearly & set(row.tolist())) for row in juries.hidden(corners)]
        assert np.mean(missed_by_one) > 0.3


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(AttackError, match="got 'moon'"):
        pick_corner("moon", Juries(SPREAD), np.random.default_rng(0))


# -------------------------------------------------------------------------------------------------- the gauntlet


def smooth_images(count: int) -> Tensor:
    """Images that one network is sure about: large areas of one colour."""
    chance = torch.Generator().manual_seed(3)
    small = torch.rand(count, 3, 2, 2, generator=chance)
    return nn.functional.interpolate(small, size=(24, 24), mode="bilinear").clamp(0, 1)


def gauntlet(rule: Rule, cover: Cover, network: nn.Module) -> tuple[int, int]:
    """Images whose certificate holds, and how many of those some adaptive attack breaks."""
    classifier = Classifier(network, 24, batch=16, precision="fp32")
    defence, images = MaskedDefence(cover, rule, "defence"), smooth_images(60)
    engine, surrogate = Engine(classifier, [cover]), Surrogate(classifier, [cover])
    labels = classifier(images).argmax(dim=1)
    found = {f.number: f.value[0].certified for f in examine(engine, images, labels.tolist(), [defence])}
    holds = torch.tensor([bool(found[number]) for number in range(len(images))])
    images, labels = images[holds][:8], labels[holds][:8]
    broken = torch.zeros(len(images), dtype=torch.bool)
    for seed in range(2):
        attack = AdaptiveAttack(surrogate, defence, Descent(steps=25), views=8)
        attacked = attack(Job(images, labels, cover.patch), defence_judge(engine, defence), seed=seed)
        pairs = zip(attacked.decisions, labels.tolist(), strict=True)
        broken |= torch.tensor([rule.guarantee.broken_by(decision, label) for decision, label in pairs])
    return len(images), int(broken.sum())


class Hues(nn.Module):
    """Sees nothing but which colour the picture has most of: easy to certify, and near its limits easy to turn."""

    def forward(self, batch: Tensor) -> Tensor:
        return 30 * batch.mean(dim=(2, 3))


@pytest.mark.parametrize("rule", [Published(), UnanimousMajority()], ids=str)
def test_unsound_certificates_fall(rule: Rule) -> None:
    images, broken = gauntlet(rule, SPREAD, tiny_network(seed=1))
    assert images >= 3
    assert broken >= images / 2


@pytest.mark.parametrize("network", [tiny_network(seed=1), Hues()], ids=["convolutions", "hues"])
@pytest.mark.parametrize("rule", [JuryDetection(), JuryRecovery("aligned")], ids=str)
def test_proved_certificates_stand(rule: Rule, network: nn.Module) -> None:
    images, broken = gauntlet(rule, SPREAD, network)
    assert images >= 3
    assert broken == 0


@pytest.mark.parametrize("rule", [MinorityReports(), PatchCleanser(), PatchCleanser(True)], ids=str)
def test_proved_certificates_of_others_stand(rule: Rule) -> None:
    images, broken = gauntlet(rule, SPREAD, Hues())
    assert images >= 3
    assert broken == 0


def test_what_breaks_a_guarantee() -> None:
    right, wrong = Decision(1), Decision(2)
    warned, wrong_warned = Decision(1, alert=True), Decision(2, alert=True)
    for guarantee, harmless in (
        (Guarantee.DETECTION, {right, warned, wrong_warned}),
        (Guarantee.RECOVERY, {right}),
        (Guarantee.PUBLISHED, {right, warned}),
        (Guarantee.NONE, {right, warned}),
    ):
        assert {d for d in (right, wrong, warned, wrong_warned) if not guarantee.broken_by(d, 1)} == harmless


def test_goals_through_masks_and_bare_ones_do_not_mix(classifier: Classifier) -> None:
    defence = MaskedDefence(SPREAD, Published())
    surrogate = Surrogate(classifier, [SPREAD])
    with pytest.raises(AttackError, match="got both"):
        AdaptiveAttack(surrogate, defence, goals=[*goals_against(defence), BARE_PICTURE])
    with pytest.raises(AttackError, match="got 0"):
        AdaptiveAttack(surrogate, defence, views=0)
