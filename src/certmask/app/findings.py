"""What the page says about a study, in HTML: the answer, what is guaranteed, and how the votes fell."""

from __future__ import annotations

from collections import Counter

from certmask.app.canvas import claims_picture, level_picture, picture_uri, small_pictures
from certmask.app.studio import in_passes
from certmask.app.study import MaskedView, Study
from certmask.certificate import BASES, Guarantee, class_name
from certmask.report.markup import Markup, data_uri, joined, tag
from certmask.rules.jury_detection import JuryDetection

NAMED = 12
"""Classes that are told by name."""


PART = "as much of the photo as the model looks at"
LAST_LEVEL = "The finest level settles what is left, however small the lead, unless its rule wants one."


def found(study: Study, promise: bool = True) -> Markup:
    """Everything about a study; without ``promise``, its answer and votes alone, and no word on what is proved."""
    parts = (verdict(study) if promise else _answer(study), _claims(study), _levels(study), _votes(study))
    return tag("div", *parts, class_="cm")


def notice(words: str) -> Markup:
    """Why there is no answer."""
    return tag("p", words, class_="cm cm-refused", role="alert")


def picture(address: str, alt: str, caption: str = "", kind: str = "") -> Markup:
    """A picture with what it shows, for those who cannot see it, too."""
    image = tag("img", src=address, alt=alt)
    words = [tag("figcaption", caption)] if caption else []
    return tag("figure", image, *words, class_=f"cm-figure {kind}".strip())


def verdict(study: Study) -> Markup:
    """The answer and its guarantee in one plain sentence, what it took, and the certificate as a file."""
    one = study.explanation
    tone = "alert" if one.alert else "proved" if _certified(study) else "unproved"
    more = "with the proof" if study.defence.guarantee.proved else "with all that masks say"
    took = f"{in_passes(one.passes)} to answer, {study.passes:,} {more}, {study.seconds:.1f} s"
    return tag(
        "section",
        tag(
            "p",
            tag("strong", study.name, class_="cm-label"),
            " ",
            tag("span", _badge(study), class_=f"cm-badge cm-{tone}"),
        ),
        tag("p", f"{study.sentence[0].upper()}{study.sentence[1:]}.", class_="cm-guarantee"),
        tag("p", _known(study), class_="cm-note"),
        tag("p", f"{study.model}, {study.defence.name}; {took}. ", _download(study), class_="cm-note"),
        class_=f"cm-verdict cm-verdict-{tone}",
        aria_label="answer",
    )


def _answer(study: Study) -> Markup:
    """The answer of a model whose margin is not known to hold here."""
    return tag(
        "section",
        tag("p", tag("strong", study.name, class_="cm-label")),
        tag("p", "No guarantee is stated here.", class_="cm-guarantee"),
        tag(
            "p",
            f"{study.model}, {study.defence.name}; {in_passes(study.passes)}, {study.seconds:.1f} s.",
            class_="cm-note",
        ),
        class_="cm-verdict cm-verdict-unproved",
        aria_label="answer",
    )


def _known(study: Study) -> str:
    """What the model could have answered: a proof is about its answer, which need not be true."""
    some = ", ".join(study.names) if len(study.names) <= NAMED else f"{len(study.names):,} classes"
    truth = " A proof about its answer does not make the answer true." if _certified(study) else ""
    return f"The model knows {some}, and nothing else.{truth}"


def _certified(study: Study) -> bool:
    """Whether a theorem promises something about this photo."""
    return study.explanation.certificate.holds and study.defence.guarantee.proved


def _badge(study: Study) -> str:
    """What became of the photo, in a word or two."""
    one = study.explanation
    if one.alert:
        return "alert: this may be an attack"
    if not one.certificate.holds:
        return "not certified"
    if study.defence.guarantee is Guarantee.PUBLISHED:
        return "passes the published test, which proves nothing"
    return f"certified {study.defence.guarantee.value}"


def _download(study: Study) -> Markup:
    address, kind = data_uri(study.certificate.encode(), "application/json"), "certificate"
    if not _certified(study):
        kind = "finding"
    return tag("a", f"The {kind} as a file", href=address, download=f"{kind}.json")


def _claims(study: Study) -> Markup:
    """The photo, and over it what every place claims."""
    one = study.explanation
    why = one.why(study.names)
    told = not one.basis or BASES[one.basis] in why
    basis = "" if told else f" {one.basis.capitalize()}: {BASES[one.basis]}."
    size = f"{study.picture.height}×{study.picture.width} pixels"
    photo = picture(picture_uri(study.sharp), f"the photo, {study.photo}", PART)
    seen = f"what the model sees, {size}"
    own = picture(picture_uri(study.picture), f"{study.photo} as the model sees it, {size}", seen, "cm-pixels")
    shown = [own] if study.sharp.size == study.picture.size else [photo, own]
    if not one.places:
        return tag("section", tag("h3", "What it saw"), tag("div", *shown, class_="cm-pair"))
    over = picture(
        claims_picture(study.sharp, study.map),
        f"the photo with what each place claims: {why}",
        f"suppose the patch has its centre here: blue says {study.name}, orange another class, pale is in doubt",
    )
    words = tag("p", f"{why[0].upper()}{why[1:]}.{basis}")
    return tag("section", tag("h3", "What each place claims"), words, tag("div", *shown, over, class_="cm-pair"))


def _levels(study: Study) -> Markup:
    """Level by level: which places were settled at once, where it looked closer."""
    places, levels = study.explanation.places, study.defence.cover.levels
    if not places or not levels:
        return Markup("")
    figures = []
    for level, cover in enumerate(levels):
        doubtful = _doubtful(study, level)
        settled = sum(place.level == level for place in places) - len(doubtful)
        closer = sum(place.level > level for place in places)
        told = f"{settled:,} of {len(places):,} places settled"
        told += f", {closer:,} looked at closer" if closer else ""
        told += f", {len(doubtful):,} in doubt" if doubtful else ""
        alt = f"level {level + 1}, masks of {cover.mask[0]}×{cover.mask[1]}: {told}"
        figures.append(picture(level_picture(study.sharp, study.map, level, doubtful), alt, alt))
        if not closer:
            break
    rest = len(levels) - len(figures)
    more = f" {rest} finer level{'s were' if rest > 1 else ' was'} not needed for the answer." if rest else ""
    words = tag(
        "p",
        f"Blue: settled for {study.name}. Orange: settled for another class. Dark: looked at closer, with smaller "
        f"masks, or in doubt to the last. Grey: settled before. {LAST_LEVEL}{more}",
        class_="cm-note",
    )
    return tag("section", tag("h3", "Level by level"), words, tag("div", *figures, class_="cm-row"))


def _doubtful(study: Study, level: int) -> set[int]:
    """Places that stay in doubt at the last level, for a rule that wants a lead there, too."""
    rule, last = study.defence.rule, len(study.defence.cover.levels) - 1
    if level < last or not isinstance(rule, JuryDetection):
        return set()
    places = enumerate(study.explanation.places)
    return {number for number, place in places if place.level == last and place.lead <= rule.last}


def _votes(study: Study) -> Markup:
    """What the model said under each mask alone; votes for another class than the answer are framed."""
    if not study.views:
        return Markup("")
    shown = study.views[: len(study.masked)]
    addresses = small_pictures(study.masked)
    figures = [_vote(study, view, address) for view, address in zip(shown, addresses, strict=True)]
    counts = Counter(class_name(view.label, study.names) for view in study.views).most_common(5)
    said = ", ".join(f"{name} {count}" for name, count in counts)
    dissent = sum(view.dissents for view in study.views)
    odd = "none dissents" if not dissent else "the dissenting one is framed" if dissent == 1 else "dissenters framed"
    rest = f" {len(shown)} of {len(study.views):,} are shown." if len(shown) < len(study.views) else ""
    duels = study.explanation.duels
    pairs = f" {duels:,} more votes, under two masks or more at once, are not shown." if duels else ""
    words = tag("p", f"{len(study.views):,} masks voted: {said}; {odd}.{rest}{pairs}")
    return tag("section", tag("h3", "Masks and their votes"), words, tag("div", *figures, class_="cm-votes"))


def _vote(study: Study, view: MaskedView, address: str) -> Markup:
    name = class_name(view.label, study.names)
    sure = f"{100 * view.confidence:.0f}\N{NO-BREAK SPACE}%"
    alt = f"mask {view.mask + 1}: {name}, {sure}{', dissents' if view.dissents else ''}"
    caption = joined(tag("b", name), f" {sure}")
    image = tag("img", src=address, alt=alt)
    kind = "cm-pixels cm-vote cm-dissent" if view.dissents else "cm-pixels cm-vote"
    return tag("figure", image, tag("figcaption", caption), class_=kind)
