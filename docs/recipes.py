"""Blocks about recipes of training: steps that were tried on photos for choosing, and what came of them on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiment_tables import lined

from certmask.results.columns import figures
from certmask.results.run import Run, read_run
from certmask.results.statistics import Share, mcnemar
from certmask.training import Recipe
from certmask.training.transplant import ENLARGED
from certmask.zoo import Card
from certmask.zoo.card import read_card

CHOOSE, FIRST = "choose-", ("greedy", "pairs")
"""How names of steps begin, and the step that all others stand beside, the first of these that there is."""

DEFENCES = ("jury-detection", "patchcleanser", "zoom")
GRID = "patchcleanser, token grid"
SHIPPED = Path("reproduce/zoom/deit_tiny-imagenette--imagenette--patch32.jsonl.gz")
THERE = {"jury-detection": "6×6 agreement", "patchcleanser": "PatchCleanser 6×6", "zoom": "zoom"}
"""What the run of the network that comes with certmask calls these defences."""

BEFORE_TEACHER, AFTER_TEACHER = "recipes/cifar10-wide-fifth", "models/cifar10-resnet26w3-pairs"
WITHOUT_TEACHER = "recipes/cifar10-wide-untaught"
"""The same epochs without a teacher, examined on a part of the photos."""
ON_MORE_TOKENS = ("greedy-384", "worst-384")
SHIPPED_SETTING = "zoom 2-3-6-12, 0.95,0.5,0.2 / 0.9,0.2,0.1"
"""What a run of all settings calls zoom as it comes with certmask."""
SEEDS = {"": "", "-again": " again"}
"""How names of steps end, and what of them is told, for the first seed and the second."""

Told = Callable[[Mapping[str, Any]], str]
WORDS: tuple[tuple[str, Told], ...] = (
    ("tries", lambda own: f"the worst of {own['tries']}"),
    ("one_cover", lambda _: "every size of masks in its turn"),
    ("recall", lambda own: f"hard masks recalled ({own['recall']:g})"),
    ("views", lambda own: f"{own['views']} views"),
    ("whole", lambda _: "the whole picture beside them"),
    ("agreement", lambda own: f"agreement {own['agreement']:g}"),
    ("taught", lambda own: f"targets taught by others ({own['taught']:g})"),
    ("fill", lambda _: "any colour"),
    ("zoom", lambda own: f"windows down to {own['zoom']:g}"),
    ("colour", lambda own: f"colours ± {own['colour']:g}"),
    ("smoothing", lambda own: f"labels smoothed by {own['smoothing']:g}"),
    ("average", lambda own: f"averaged weights ({own['average']:g})"),
)
PLAIN = Recipe()


def hidden(recipe: Mapping[str, Any]) -> str:
    """What a view hides, and how it is found, in words."""
    if recipe["cutout"] != "pairs":
        return f"{recipe['cutout']} Cutout"
    levels = f" and {'-'.join(map(str, recipe['levels']))} per axis" if recipe["levels"] else ""
    return f"pairs of 6×6 masks{levels}"


def told(recipe: Mapping[str, Any], without: tuple[str, ...] = ()) -> str:
    """A recipe in words: what is hidden, and all that is not as in the paper's."""
    asked = {key: recipe.get(key, getattr(PLAIN, key)) for key, _ in WORDS if key not in without}
    more = [say(recipe) for key, say in WORDS if key in asked and asked[key] != getattr(PLAIN, key)]
    return "; ".join([hidden(recipe), *more])


def learnt(card: Card, beside: Card, common: tuple[str, ...]) -> str:
    """What a step learns, and its rate and seed where they are not those of the step that it stands beside."""
    if card.data["start"].startswith("mean of "):
        return f"the mean of the weights of {len(card.data['start'].split(','))} of these networks"
    others = [f"{key} {card.recipe[key]:g}" for key in ("rate", "seed") if card.recipe[key] != beside.recipe[key]]
    _, _, side = card.architecture.partition(ENLARGED)
    where = [f"on the picture enlarged to {side}"] if side else []
    return "; ".join([told(card.recipe, common), *others, *where])


def passes(card: Card) -> int:
    """For every photo, in all epochs: forward passes, those of teachers too; a backward one counts as two."""
    made, photos = card.metrics, card.data["train"]["images"]
    each: float = (made["training_passes"] + made.get("teacher_passes", 0)) / photos
    return round(each)


def shares(run: Run, names: Mapping[str, str]) -> str:
    """Clean without a defence, and what is certified under each."""
    lines = {line.defence: line for line in figures(run)}
    certified = [line.certified.percent if (line := lines[names[key]]).certified else "–" for key in DEFENCES]
    return " | ".join([lines["undefended"].clean.percent, *certified])


class Change(NamedTuple):
    """Photos gained and lost, and how likely so uneven a split is by chance."""

    gained: str
    lost: str
    chance: str


def change(before: Mapping[str, bool], after: Mapping[str, bool]) -> Change:
    """Of what holds of a photo before and after, such as its certificate; on the same photos."""
    assert before.keys() == after.keys()
    gained, lost = sum(after[i] > before[i] for i in after), sum(after[i] < before[i] for i in after)
    return Change(str(gained), str(lost), f"{mcnemar(gained, lost):.2g}")


def changed(before: Mapping[str, bool], after: Mapping[str, bool]) -> str:
    """The same as cells of a table."""
    return " | ".join(change(before, after))


def chance(before: Mapping[str, bool], after: Mapping[str, bool]) -> str:
    return change(before, after).chance


def certified(run: Run, defence: str, margin: float = 0.0) -> dict[str, bool]:
    """The photos that a run certifies; with a larger margin than its own, those whose votes exceed that one, too."""
    more = max(margin - run.defences[defence]["rule"]["margin"], 0.0)
    rows = {row["image"]: row["defences"][defence] for row in run.rows}
    return {image: own["certified"] and (not more or own["weakest"]["lead"] > more) for image, own in rows.items()}


def alike(one: Run, other: Run, defence: str = "patchcleanser") -> list[dict[str, bool]]:
    """What two networks certify if both are held to the larger of their measured margins."""
    margin = max(run.defences[defence]["rule"]["margin"] for run in (one, other))
    return [certified(run, defence, margin) for run in (one, other)]


def steps_table(folder: Path) -> str:
    """Every step on photos for choosing; what all have in common of averages is not told."""
    prefix = f"{folder.name}-{CHOOSE}"
    cards = {path.stem: read_card(path) for path in sorted(folder.parent.glob(f"{prefix}*.json"))}
    runs = {name: read_run(folder.parent / f"{name}.jsonl.gz") for name in cards}
    first = next(prefix + name for name in FIRST if prefix + name in cards)
    common = ("average",) if len({card.recipe["average"] for card in cards.values()}) == 1 else ()
    rows = []
    for name in sorted(cards, key=lambda name: (name != first, passes(cards[name]) > 150, name)):
        beside = "– | – | –" if name == first else changed(*alike(runs[first], runs[name]))
        same = {key: key for key in DEFENCES}
        rows.append(
            f"[{learnt(cards[name], cards[first], common)}](../results/recipes/{name}.json) | "
            f"{cards[name].recipe['epochs']} | {passes(cards[name])} | {shares(runs[name], same)} | {beside}"
        )
    return lined(
        "what is learnt | epochs | passes per photo | clean | detection, one mask | recovery, two masks | "
        "recovery, zoom | gained | lost | p",
        rows,
    )


def reported_table(folder: Path) -> str:
    """Networks of these steps on the photos of figures, beside the one that comes with certmask."""
    shipped = read_run(folder.parent / SHIPPED)
    before = certified(shipped, THERE["patchcleanser"])
    card = read_card(folder.parent / "models" / "imagenette-deit_tiny-greedy.json")
    rows = [f"{told(card.recipe)}; as shipped | {_passes(card)} | {_shipped(shipped)} | – | – | –"]
    for path in sorted(folder.glob("imagenette-reported-*.jsonl.gz")):
        step = path.name.removeprefix("imagenette-reported-").removesuffix(".jsonl.gz")
        own, run = read_card(folder / f"imagenette-{CHOOSE}{step}.json"), read_run(path)
        same = {key: key for key in DEFENCES}
        figures_of = shares(run, same).split(" | ")
        beside = changed(before, certified(run, "patchcleanser"))
        rows.append(f"{told(own.recipe)} | {passes(own)} | {figures_of[0]} | {' | '.join(figures_of[2:])} | {beside}")
    return lined(
        "what was learnt | passes per photo | clean | recovery, two masks | recovery, zoom | gained | lost | p", rows
    )


def views_table(folder: Path) -> str:
    """Networks of a group of steps on the photos of figures, with other masks and with mirror views; two masks beside
    the network that comes with certmask."""
    shipped = read_run(folder.parent.parent / SHIPPED)
    before, rows = certified(shipped, THERE["patchcleanser"]), []
    there = (THERE["patchcleanser"], "PatchCleanser 6×6 on a token grid", THERE["zoom"])
    rows.append(f"greedy Cutout; as shipped | plain | {_defended(shipped, there)} | – | – | –")
    first = read_card(folder.parent / f"{folder.name}-{CHOOSE}{FIRST[0]}.json")
    for path in sorted(folder.parent.glob(f"{folder.name}-reported-*.jsonl.gz")):
        step = path.name.removesuffix(".jsonl.gz").partition("-reported-")[2].removesuffix("-mirror")
        run, card = read_run(path), read_card(folder.parent / f"{folder.name}-{CHOOSE}{step}.json")
        views = " and ".join(run.model.get("views", ["plain"]))
        beside = changed(before, certified(run, "patchcleanser"))
        found = _defended(run, ("patchcleanser", GRID, "zoom"))
        rows.append(f"{learnt(card, first, ('average',))} | {views} | {found} | {beside}")
    return lined(
        "what was learnt | views | clean, no defence | clean, zoom | recovery, two masks | on the token grid | "
        "recovery, zoom | gained | lost | p",
        rows,
    )


def _defended(run: Run, names: tuple[str, str, str]) -> str:
    """Clean without a defence and with the last one, and what each certifies; nothing of one that was not asked."""
    lines = {line.defence: line for line in figures(run)}
    clean = (lines["undefended"].clean.percent, lines[names[-1]].clean.percent)
    return " | ".join([*clean, *(share(certified(run, name)) if name in lines else "–" for name in names)])


def share(found: Mapping[str, bool]) -> str:
    """Of the photos for which something holds, in percent."""
    return Share(sum(found.values()), len(found)).percent


def _passes(card: Card) -> int:
    """Of a card from before passes were written on it."""
    known = {key: value for key, value in card.recipe.items() if key in Recipe.__dataclass_fields__}
    known["greedy_shares"] = tuple(known["greedy_shares"])
    recipe = Recipe(**known)
    return recipe.epochs * recipe.passes


def _shipped(run: Run) -> str:
    lines = {line.defence: line for line in figures(run)}
    two, zoom = (share(certified(run, THERE[key])) for key in DEFENCES[1:])
    return f"{lines['undefended'].clean.percent} | {two} | {zoom}"


def _taught(results: Path) -> dict[str, str]:
    """The wider ResNet before and after it had a teacher, by two masks and by zoom, on the same photos."""
    runs = [read_run(results / name) for name in (f"{BEFORE_TEACHER}.jsonl.gz", f"{AFTER_TEACHER}.jsonl.gz")]
    two, zoom = ([certified(run, defence) for run in runs] for defence in ("patchcleanser", "zoom"))
    words = ("taught two before", "taught two", "taught zoom before", "taught zoom")
    apart = {f"taught two {word}": text for word, text in change(*two)._asdict().items()}
    return {**dict(zip(words, map(share, (*two, *zoom)), strict=True)), **apart, **_untaught(results, *two)}


def _untaught(results: Path, before: Mapping[str, bool], taught: Mapping[str, bool]) -> dict[str, str]:
    """The same epochs without a teacher, beside what two masks certify before and with one, on the photos of all."""
    without = certified(read_run(results / f"{WITHOUT_TEACHER}.jsonl.gz"), "patchcleanser")
    before, taught = ({image: own[image] for image in without} for own in (before, taught))
    shares_of = {"untaught before": share(before), "untaught": share(without), "untaught beside": share(taught)}
    chances = {"untaught alone chance": chance(before, without), "untaught chance": chance(without, taught)}
    return {"untaught photos": f"{len(without):,}", **shares_of, **chances}


def _enlarged(results: Path) -> dict[str, str]:
    """Networks on the enlarged picture: by two masks beside the same recipe on the plain one, and beside masks on
    tokens of the network that comes with certmask; by zoom beside that network."""
    shipped = read_run(results / SHIPPED)
    plain, *networks = (
        read_run(results / "recipes" / f"imagenette-kept-reported-{name}.jsonl.gz")
        for name in ("greedy", *ON_MORE_TOKENS)
    )
    on_grid = certified(shipped, "PatchCleanser 6×6 on a token grid")
    found = {"plain two": share(certified(plain, "patchcleanser")), "plain grid": share(on_grid)}
    for name, run in zip(ON_MORE_TOKENS, networks, strict=True):
        two, zoom = (certified(run, word) for word in ("patchcleanser", "zoom"))
        found |= {f"{name} two": share(two), f"{name} zoom": share(zoom)}
        found[f"{name} two chance"] = chance(certified(plain, "patchcleanser"), two)
        found[f"{name} grid chance"] = chance(on_grid, two)
        found[f"{name} zoom chance"] = chance(certified(shipped, THERE["zoom"]), zoom)
    return found


def _worst_pairs(results: Path) -> dict[str, str]:
    """CIFAR-10, as many passes each: the worst of four pairs beside greedy Cutout, for two seeds.

    By zoom, whose looks depend on the margin, each at its own.
    """
    found: dict[str, str] = {}
    for end, seed in SEEDS.items():
        greedy, worst = (
            read_run(results / "recipes" / f"cifar10-on-{CHOOSE}{name}{end}.jsonl.gz") for name in ("greedy", "worst")
        )
        proved = alike(greedy, worst)
        found |= {f"greedy{seed}": share(proved[0]), f"worst{seed}": share(proved[1])}
        found[f"worst{seed} chance"] = chance(*proved)
        found[f"worst{seed} zoom chance"] = chance(certified(greedy, "zoom"), certified(worst, "zoom"))
        found |= {f"greedy{seed} clean": share(right(greedy)), f"worst{seed} clean": share(right(worst))}
    return found


def _other_masks(results: Path) -> dict[str, str]:
    """DeiT-Tiny on CIFAR-10 against another patch than the one whose masks it learnt."""
    run = read_run(results / "recipes" / "cifar10-deit-at-32.jsonl.gz")
    two, zoom = certified(run, THERE["patchcleanser"]), certified(run, SHIPPED_SETTING)
    return {"other two": share(two), "other zoom": share(zoom), "other chance": chance(two, zoom)}


def right(run: Run) -> dict[str, bool]:
    """The photos that are answered rightly without a defence."""
    return {row["image"]: row["defences"]["undefended"]["label"] == row["label"] for row in run.rows}


def recipes(results: Path) -> dict[str, str]:
    """What mirror views and a teacher are worth on CIFAR-10, and what the last layer's knowledge is on Imagenette."""
    found = {**_taught(results), **_enlarged(results), **_worst_pairs(results), **_other_masks(results)}
    for name, card in (("wide", "recipes/cifar10-wide-fourth"), ("deit", "recipes/cifar10-deit-third")):
        mirrored = certified(read_run(results / "recipes" / f"cifar10-{name}-mirror.jsonl.gz"), "patchcleanser")
        plain = certified(read_run(results / f"{card}.jsonl.gz"), "patchcleanser")
        found[f"{name} mirror"] = share(mirrored)
        found[f"{name} plain"] = share({image: plain[image] for image in mirrored})
    before, after = (
        right(read_run(path))
        for path in (results / SHIPPED, results / "recipes" / "imagenette-kept-reported-soup.jsonl.gz")
    )
    found["clean shipped"], found["clean soup"] = map(share, (before, after))
    found["clean chance"] = chance(before, after)
    best = certified(read_run(results / "recipes" / "imagenette-kept-reported-soup-mirror.jsonl.gz"), GRID)
    return {**found, "best": share(best)}
