"""Blocks about recipes of training: steps that were tried on photos for choosing, and what came of them on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiment_tables import lined

from certmask.results.columns import figures
from certmask.results.run import Run, read_run
from certmask.results.statistics import Share, mcnemar
from certmask.training import Recipe
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
    return "; ".join([told(card.recipe, common), *others])


def passes(card: Card) -> int:
    """For every photo, in all epochs: forward passes, those of teachers too; a backward one counts as two."""
    made, photos = card.metrics, card.data["train"]["images"]
    share: float = (made["training_passes"] + made.get("teacher_passes", 0)) / photos
    return round(share)


def shares(run: Run, names: Mapping[str, str]) -> str:
    """Clean without a defence, and what is certified under each."""
    lines = {line.defence: line for line in figures(run)}
    certified = [line.certified.percent if (line := lines[names[key]]).certified else "–" for key in DEFENCES]
    return " | ".join([lines["undefended"].clean.percent, *certified])


def changed(before: Mapping[str, bool], after: Mapping[str, bool]) -> str:
    """Certificates gained and lost on the same photos, and whether that may be chance."""
    assert before.keys() == after.keys()
    gained, lost = sum(after[i] > before[i] for i in after), sum(after[i] < before[i] for i in after)
    return f"{gained} | {lost} | {mcnemar(gained, lost):.2g}"


def certified(run: Run, defence: str) -> dict[str, bool]:
    return {row["image"]: row["defences"][defence]["certified"] for row in run.rows}


def steps_table(folder: Path) -> str:
    """Every step on photos for choosing; what all have in common of averages is not told."""
    prefix = f"{folder.name}-{CHOOSE}"
    cards = {path.stem: read_card(path) for path in sorted(folder.parent.glob(f"{prefix}*.json"))}
    runs = {name: read_run(folder.parent / f"{name}.jsonl.gz") for name in cards}
    first = next(prefix + name for name in FIRST if prefix + name in cards)
    common = ("average",) if len({card.recipe["average"] for card in cards.values()}) == 1 else ()
    before, rows = certified(runs[first], "patchcleanser"), []
    for name in sorted(cards, key=lambda name: (name != first, passes(cards[name]) > 150, name)):
        beside = "– | – | –" if name == first else changed(before, certified(runs[name], "patchcleanser"))
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
    """Clean without a defence and with the last one, and what each certifies."""
    lines = {line.defence: line for line in figures(run)}
    clean = (lines["undefended"].clean.percent, lines[names[-1]].clean.percent)
    proved = (Share(sum(certified(run, name).values()), len(run.rows)).percent for name in names)
    return " | ".join([*clean, *proved])


def _passes(card: Card) -> int:
    """Of a card from before passes were written on it."""
    known = {key: value for key, value in card.recipe.items() if key in Recipe.__dataclass_fields__}
    known["greedy_shares"] = tuple(known["greedy_shares"])
    recipe = Recipe(**known)
    return recipe.epochs * recipe.passes


def _shipped(run: Run) -> str:
    lines = {line.defence: line for line in figures(run)}
    two, zoom = (Share(sum(certified(run, THERE[key]).values()), len(run.rows)).percent for key in DEFENCES[1:])
    return f"{lines['undefended'].clean.percent} | {two} | {zoom}"


def _taught(results: Path) -> dict[str, str]:
    """The wider ResNet before and after it had a teacher, by two masks and by zoom, on the same photos."""
    runs = [read_run(results / name) for name in (f"{BEFORE_TEACHER}.jsonl.gz", f"{AFTER_TEACHER}.jsonl.gz")]
    two, zoom = ([certified(run, defence) for run in runs] for defence in ("patchcleanser", "zoom"))
    words = [f"taught {name}" for name in ("two before", "two", "zoom before", "zoom")]
    shares_of = (Share(sum(own.values()), len(own)).percent for own in (*two, *zoom))
    apart = zip(("gained", "lost", "chance"), changed(*two).split(" | "), strict=True)
    return {**dict(zip(words, shares_of, strict=True)), **{f"taught two {word}": text for word, text in apart}}


def recipes(results: Path) -> dict[str, str]:
    """What mirror views and a teacher are worth on CIFAR-10, and what the last layer's knowledge is on Imagenette."""
    found = _taught(results)
    for name, card in (("wide", "recipes/cifar10-wide-fourth"), ("deit", "recipes/cifar10-deit-third")):
        mirrored = certified(read_run(results / "recipes" / f"cifar10-{name}-mirror.jsonl.gz"), "patchcleanser")
        plain = certified(read_run(results / f"{card}.jsonl.gz"), "patchcleanser")
        found[f"{name} mirror"] = Share(sum(mirrored.values()), len(mirrored)).percent
        found[f"{name} plain"] = Share(sum(plain[image] for image in mirrored), len(mirrored)).percent
    before, after = (
        {row["image"]: row["defences"]["undefended"]["label"] == row["label"] for row in read_run(path).rows}
        for path in (results / SHIPPED, results / "recipes" / "imagenette-kept-reported-soup.jsonl.gz")
    )
    found["clean shipped"], found["clean soup"] = (Share(sum(c.values()), len(c)).percent for c in (before, after))
    found["clean chance"] = changed(before, after).split(" | ")[-1]
    best = certified(read_run(results / "recipes" / "imagenette-kept-reported-soup-mirror.jsonl.gz"), GRID)
    return {**found, "best": Share(sum(best.values()), len(best)).percent}
