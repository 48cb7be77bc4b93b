"""Blocks and figures about zoom: beside PatchCleanser on every network, how it was chosen, attacked, and how fast."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from experiment_tables import CHANCE, ahead_in, behind_in, beyond_chance, compared, lined, trials_in
from networks import title_of

from certmask.certificate import Guarantee
from certmask.errors import ResultsError
from certmask.experiments.measured import FinishedTrial, Paired
from certmask.experiments.paper_tables import CLEANSER as DECLARED
from certmask.experiments.zooming import AGREEMENT, SHIPPED, SHIPPED_DETECTION, TUNED
from certmask.results.clusters import difference, is_right, split
from certmask.results.columns import AttackFigures, Figures, attack_figures, figures
from certmask.results.run import Run, read_run
from certmask.results.statistics import Share, holm, mcnemar

NETWORKS = {
    "deit_tiny_patch16_224": ("DeiT-Tiny, ImageNet", "deit-tiny"),
    "resnet50_v1": ("ResNet-50, ImageNet", "resnet50"),
    "efficientnet-lite0": ("EfficientNet-Lite0, ImageNet", "efficientnet-lite0"),
    "deit_tiny-imagenette": ("DeiT-Tiny, Imagenette", "imagenette"),
    "resnet26-cifar10": ("ResNet-26, CIFAR-10", "cifar10"),
}
"""The networks that zoom was chosen for, as pages call them, and how files about them do."""

BARE, CLEANSER, GRID = "undefended", DECLARED.name, "PatchCleanser 6×6 on a token grid"
CHALLENGER, JURIES = "PatchCleanser 6×6, challenger", "jury recovery k=4, aligned"
CHOSEN, CHOSEN_DETECTION = "zoom 2-3-6-12, 0.95,0.5,0.2 / 0.9,0.2,0.1", "detection: zoom 2-3-6-12, 0.95,0.6,0.2"
BUDGET = ("steps", "views")
DEIT, IMAGENETTE, CIFAR = "deit_tiny_patch16_224", "deit_tiny-imagenette", "resnet26-cifar10"
ROWS = (
    "clean, % | certified recovery, % | beside PatchCleanser, points | passes to answer | "
    "passes of a completed proof | passes to prove, all photos"
)


def trials(folder: Path) -> dict[str, FinishedTrial]:
    """The trials by network: those that zoom was chosen for, in the order in which pages name them, then others."""
    found = {trial.model: trial for trial in trials_in(folder)}
    if not NETWORKS.keys() <= found.keys():
        raise ResultsError(f"expected runs of {', '.join(NETWORKS)} in {folder}, got {', '.join(found)}")
    return {model: found[model] for model in (*NETWORKS, *sorted(found.keys() - NETWORKS.keys()))}


def by_name(run: Run) -> dict[str, Figures]:
    return {own.defence: own for own in figures(run)}


def measured(trial: FinishedTrial) -> dict[str, Figures]:
    """The same of a trial, which counts its rows once."""
    return {name: entry.measured for name, entry in trial.entries.items()}


def percent(share: Share | None) -> str:
    return "–" if share is None else share.percent


def passes(number: float | None) -> str:
    return "–" if number is None else f"{number:.1f}" if number < 100 else f"{number:,.0f}"


def certificates(own: Figures) -> int:
    return own.certified.count if own.certified else 0


def alerts(own: Figures) -> float:
    return own.false_alerts.value


def to_answer(own: Figures) -> float:
    return own.answer_passes


def to_prove(own: Figures) -> float:
    """Over all photos."""
    return own.proof_passes or 0.0


def proved(own: Figures) -> float:
    """Over completed proofs."""
    return own.proved_passes or 0.0


def on_tokens(trial: FinishedTrial) -> bool:
    """Whether zoom's masks lie on a grid of tokens."""
    return bool((trial.run.cover(SHIPPED) or {}).get("align", 1) > 1)


def rows(run: Run, names: Iterable[str]) -> Iterable[str]:
    """Recovery, defence by defence, and how far each is ahead of PatchCleanser on the same photos."""
    found = by_name(run)
    for own in (found[name] for name in names):
        apart = "–" if own.defence in (BARE, CLEANSER) else difference([run], own.defence, CLEANSER)
        yield (
            f"{own.defence} | {percent(own.clean)} | {percent(own.certified)} | {apart} | "
            f"{passes(own.answer_passes)} | {passes(own.proved_passes)} | {passes(own.proof_passes)}"
        )


def recovery_table(folder: Path) -> str:
    """Every network; the token grid only where zoom's masks lie on one."""
    lines = []
    for trial in trials(folder).values():
        on_grid = [GRID] if on_tokens(trial) else []
        names = (BARE, CLEANSER, *on_grid, SHIPPED, *({TUNED} & trial.entries.keys()))
        lines += [f"{title_of(trial)} | {row}" for row in rows(trial.run, names)]
    return lined(f"network | defence | {ROWS}", lines, words=2)


def one_run_table(path: Path) -> str:
    run = read_run(path)
    return lined(f"defence | {ROWS}", rows(run, run.defences))


def detection_table(folder: Path) -> str:
    lines = []
    for trial in trials(folder).values():
        found = measured(trial)
        for own in (found[AGREEMENT.name], found[SHIPPED_DETECTION]):
            lines.append(
                f"{title_of(trial)} | {own.defence} | {percent(own.clean)} | {percent(own.certified)} | "
                f"{percent(own.false_alerts)} | {passes(own.answer_passes)} | {passes(own.proved_passes)} | "
                f"{passes(own.proof_passes)}"
            )
    return lined(
        "network | defence | clean, % | certified detection, % | false alerts, % | passes to answer | "
        "passes of a completed proof | passes to prove, all photos", lines, words=2,
    )  # fmt: skip


def brief_table(folder: Path) -> str:
    """PatchCleanser and zoom, one row a network."""
    lines = []
    for trial in trials(folder).values():
        one, two = (measured(trial)[name] for name in (CLEANSER, SHIPPED))
        lines.append(
            f"{title_of(trial)} | {percent(one.certified)} → {percent(two.certified)} | "
            f"{percent(one.clean)} → {percent(two.clean)} | "
            f"{passes(one.answer_passes)} → {passes(two.answer_passes)} | "
            f"{passes(one.proved_passes)} → {passes(two.proved_passes)}"
        )
    return lined(
        "PatchCleanser 6×6 → zoom | certified recovery, % | clean, % | passes to answer | passes to prove", lines
    )


def shipped_table(folder: Path) -> str:
    """The setting that ships, on the photos for choosing; an error if a photo of the experiment is among them."""
    lines = []
    chosen_for = trials(folder.parent / "reproduce/zoom")
    for model, (name, short) in NETWORKS.items():
        trial = chosen_for[model]
        run = read_run(folder / f"{short}.jsonl.gz")
        shared = {row["input_sha256"] for row in run.rows} & {row["input_sha256"] for row in trial.run.rows}
        if shared:
            raise ResultsError(f"expected other photos in {run.path} than those of figures, got {len(shared)} of them")
        found = by_name(run)
        one, two = found[CLEANSER], found[CHOSEN]
        lines.append(
            f"{name} | {two.images:,} | {percent(one.certified)} → {percent(two.certified)} | "
            f"{difference([run], CHOSEN, CLEANSER)} | {passes(one.answer_passes)} → {passes(two.answer_passes)} | "
            f"{passes(one.proved_passes)} → {passes(two.proved_passes)}"
        )
    return lined(
        "PatchCleanser 6×6 → zoom | photos for choosing | certified recovery, % | lead, points | "
        "passes to answer | passes of a completed proof", lines,
    )  # fmt: skip


def shipped_detection_table(folder: Path) -> str:
    """Detection as shipped beside 6×6 agreement, on the networks on which it was tried before it was taken."""
    lines = []
    for name, short in NETWORKS.values():
        path = folder / f"{short}-again.jsonl.gz"
        if path.is_file():
            found = by_name(run := read_run(path))
            one, two = found[AGREEMENT.name], found[CHOSEN_DETECTION]
            lines.append(
                f"{name} | {two.images:,} | {percent(one.certified)} → {percent(two.certified)} | "
                f"{difference([run], CHOSEN_DETECTION, AGREEMENT.name)} | "
                f"{percent(one.false_alerts)} → {percent(two.false_alerts)} | "
                f"{passes(one.answer_passes)} → {passes(two.answer_passes)}"
            )
    return lined(
        "6×6 agreement → zoom detection | photos for choosing | certified detection, % | lead, points | "
        "false alerts, % | passes to answer", lines,
    )  # fmt: skip


def attacks_table(start: Path) -> str:
    """Attempts on photos that zoom certifies, and on the same photos without a defence."""
    lines, budgets = [], set()
    for name, short in NETWORKS.values():
        run = read_run(start.with_name(f"{start.name}-{short}-attempts.jsonl.gz"))
        bare, own = attack_figures(run)
        budgets.add((run.model["precision"], run.model["device"], *(run.header["budget"][k] for k in BUDGET)))
        if bare.guarantee is not Guarantee.NONE or own.broken is None:
            raise ResultsError(f"expected attempts on the bare model and on certified photos in {run.path}, got others")
        lines.append(
            f"{name} | {bare.attempts} | {bare.label_changed} | {bare.images_lost} of {bare.images} | {own.attempts} | "
            f"{own.label_changed} | {own.broken} | {own.images}"
        )
    ((precision, device, steps, views),) = budgets
    table = lined(
        "network | attempts, undefended | label changed | photos lost | attempts, zoom | label changed | "
        "certificate broken | photos", lines,
    )  # fmt: skip
    return f"{precision} on {device}, {steps} steps with {views} masked views each\n\n{table}"


def uncertified(start: Path) -> Iterable[tuple[str, AttackFigures, Share]]:
    """Attempts on photos that are answered rightly and not certified, and how many of these answers fell; a last resort
    that was not reached is left out."""
    for name, short in NETWORKS.values():
        run = read_run(start.with_name(f"{start.name}-{short}-uncertified.jsonl.gz"))
        for own in attack_figures(run):
            if own.attempts:
                fell = sum(row["fell"] for row in run.rows if row["defence"] == own.defence)
                yield name, own, Share(fell, own.attempts)


def last_resorts_table(start: Path) -> str:
    lines = (
        f"{name} | {own.defence.removeprefix('zoom, last resort ')} | {own.attempts} | {fell.count} | {fell.percent} | "
        f"{own.images_lost} of {own.images}"
        for name, own, fell in uncertified(start)
    )
    return lined("network | last resort | attempts | answers that fell | % | photos lost", lines, words=2)


def speed_table(path: Path) -> str:
    content = json.loads(path.read_text())
    alone, photos = content["network_alone_passes_per_second"], content["data"]["images"]
    lines = [f"the network alone, full batches | – | – | {alone:,.0f} | 100 % | – | – | –"]
    for row in content["rows"]:
        rate = row.get("passes_per_second")
        certified = ("–", row["certified"]) if "detection" in row["defence"] else (row["certified"], "–")
        lines.append(
            f"{row['defence']} | {row.get('photos', photos):,} | {row['seconds']:.1f} | "
            + (f"{rate:,.0f} | {rate / alone:.0%}".replace("%", " %") if rate else "– | –")
            + f" | {row['photos_per_second']:,.1f} | {certified[0]} | {certified[1]}"
        )
    model, versions = content["model"], content["versions"]
    how = f"{model['precision']}, batch {model['batch']}"
    head = f"{model['name']}, {how}, {content['device']}, torch {versions['torch']}, timm {versions['timm']}"
    table = lined(
        "defence | photos | seconds | passes/s | of the network alone | photos/s | certified recovery, photos | "
        "certified detection, photos", lines,
    )  # fmt: skip
    return f"{head}\n\n{table}"


def meters_table(path: Path) -> str:
    """Table 1's nine defences at once by the meter of a run: the best of the two tables before, and now."""
    found = []
    for name, file in (("rules on many pictures", "at-once-h200.json"), ("with checks", "trust-at-once-h200.json")):
        content = json.loads((path.parent / file).read_text())
        best = max((row for row in content["rows"] if row["source"] == "after"), key=lambda r: r["passes_per_second"])
        best = {"photos": content["photos"], **best}
        found.append((name, best, content["network_alone_passes_per_second"]))
    now = json.loads(path.read_text())
    alone = json.loads((path.parent / "zoom-h200.json").read_text())["network_alone_passes_per_second"]
    found.append(("with zoom's rules", now, alone))
    lines = []
    for name, run, speed in found:
        rate = run["passes"] / run["seconds"]
        share = f"{rate / speed:.0%}".replace("%", " %")
        amounts = f"{run['photos']} | {run['passes']:,} | {run['seconds']:.1f} | {rate:,.0f}"
        lines.append(f"{name} | {amounts} | {speed:,.0f} | {share}")
    return lined("version | photos | passes | seconds | passes/s | the network alone, passes/s | share of it", lines)


def sure(found: Sequence[FinishedTrial], first: str, second: str) -> dict[str, str]:
    """On how many networks the first certifies more, and on how many of these beyond chance."""
    asked = beside(found, first, second)
    won = ahead_in(asked)
    return {"": f"{len(won)} of {len(asked)}", " beyond chance": beyond_chance(won)}


def behind(found: Sequence[FinishedTrial]) -> dict[str, str]:
    """Zoom's leads where it certifies fewer than PatchCleanser, and their chances before and after Holm."""
    lost = behind_in(beside(found, SHIPPED, CLEANSER))
    return {
        "": ", ".join(str(difference([pair.trial.run], SHIPPED, CLEANSER)) for pair in lost),
        " chance": ", ".join(f"{pair.chance:.2f}" for pair in lost),
        " adjusted": ", ".join(f"{pair.adjusted:.2f}" for pair in lost),
    }


def beside(found: Sequence[FinishedTrial], first: str, second: str) -> list[Paired]:
    return [pair for pair in compared(found[0].run.path.parent, first, second) if pair.trial in found]


def right_more(found: Sequence[FinishedTrial], first: str, second: str) -> tuple[int, int]:
    """On how many networks the first answers more clean photos rightly, and beyond chance after Holm over them."""
    splits = [split(one.run, first, second, is_right) for one in found]
    chances = holm([mcnemar(*counts) for counts in splits])
    return sum(a > b for a, b in splits), sum(a > b and p < CHANCE for (a, b), p in zip(splits, chances, strict=True))


def margin_of(run: Run) -> float:
    """The margin of PatchCleanser's certificates."""
    return float(run.defences[CLEANSER]["rule"]["margin"])


def ends(values: Iterable[float], form: str) -> str:
    low, *_, high = sorted(values)
    return f"{low:{form}} to {high:{form}}".replace("-", "−")


def zoom(results: Path) -> dict[str, str]:
    """Figures in sentences about zoom."""
    networks = trials(results / "reproduce/zoom")
    found = list(networks.values())
    own = {model: measured(trial) for model, trial in networks.items()}
    on_grid = [trial for trial in found if on_tokens(trial)]
    deit, small = own[DEIT], own[IMAGENETTE]
    mirror = by_name(read_run(results / "mirror/deit-tiny.jsonl.gz"))
    apart = {title_of(trial): difference([trial.run], SHIPPED, BARE, is_right) for trial in found}
    more_right, fewer_right = right_more(found, SHIPPED, CLEANSER), right_more(found, CLEANSER, SHIPPED)

    def points(first: str, second: str) -> str:
        return ends((difference([t.run], first, second).points for t in found), "+.1f")

    def parts(first: str, price: Callable[[Figures], float]) -> str:
        return ends((100 * price(o[first]) / price(o[CLEANSER]) for o in own.values()), ".0f")

    def fewer(first: str, second: str, price: Callable[[Figures], float]) -> str:
        return f"{sum(price(o[first]) < price(o[second]) for o in own.values())} of {len(own)}"

    return {
        **{f"ahead{name}": text for name, text in sure(found, SHIPPED, CLEANSER).items()},
        **{f"behind{name}": text for name, text in behind(found).items()},
        "points": points(SHIPPED, CLEANSER),
        "proof part": parts(SHIPPED, proved),
        "answer part": parts(SHIPPED, to_answer),
        "all proofs": fewer(SHIPPED, CLEANSER, to_prove),
        "all proofs zoom": passes(deit[SHIPPED].proof_passes),
        "all proofs cleanser": passes(deit[CLEANSER].proof_passes),
        "challenger answer": ends((o[CHALLENGER].answer_passes for o in own.values()), ".0f"),
        "fewer than challenger": fewer(SHIPPED, CHALLENGER, to_answer),
        "clean more": str(more_right[0]),
        "clean fewer": str(fewer_right[0]),
        "clean beyond chance": str(more_right[1] + fewer_right[1]),
        **{f"tuned{name}": text for name, text in sure(found, TUNED, CLEANSER).items()},
        "tuned points": str(difference([networks[DEIT].run], TUNED, CLEANSER)),
        "tuned passes": passes(deit[TUNED].proved_passes),
        "tuned part": f"{100 * proved(deit[TUNED]) / proved(deit[CLEANSER]):.0f}",
        "tuned more": str(sum(certificates(o[TUNED]) > certificates(o[SHIPPED]) for o in own.values() if TUNED in o)),
        **{f"grid{name}": text for name, text in sure(on_grid, SHIPPED, GRID).items()},
        "grid gains": ends((difference([t.run], GRID, CLEANSER).points for t in on_grid), "+.1f"),
        "grid imagenette": str(certificates(small[GRID]) - certificates(small[SHIPPED])),
        **{f"juries{name}": text for name, text in sure(found, SHIPPED, JURIES).items()},
        "mirror cleanser": percent(mirror[CLEANSER].certified),
        "mirror grid": percent(mirror[GRID].certified),
        "mirror zoom": percent(mirror[SHIPPED].certified),
        "plain zoom": percent(deit[SHIPPED].certified),
        **{f"detection{name}": text for name, text in sure(found, SHIPPED_DETECTION, AGREEMENT.name).items()},
        "detection points": points(SHIPPED_DETECTION, AGREEMENT.name),
        "detection quieter": fewer(SHIPPED_DETECTION, AGREEMENT.name, alerts),
        "detection cheaper": fewer(SHIPPED_DETECTION, AGREEMENT.name, to_answer),
        "detection proofs": fewer(SHIPPED_DETECTION, AGREEMENT.name, proved),
        "detection answer": passes(deit[SHIPPED_DETECTION].answer_passes),
        "detection all proofs": fewer(SHIPPED_DETECTION, AGREEMENT.name, to_prove),
        "clean lost": ", ".join(f"{a.points:+.1f} ({title})".replace("-", "−", 1) for title, a in apart.items()),
        "clean lost beyond chance": str(right_more(found, BARE, SHIPPED)[1]),
        "fell": ends((100 * fell.value for *_, fell in uncertified(results / "attacks/zoom")), ".1f"),
        "imagenette answer": passes(small[SHIPPED].answer_passes),
        "margin": f"{margin_of(networks[CIFAR].run):.2g}",
        "margin choosing": f"{margin_of(read_run(results / 'shipped/cifar10.jsonl.gz')):.2g}",
    }
