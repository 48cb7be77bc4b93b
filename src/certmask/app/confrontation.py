"""What the page says about a patched photo: bare model, published rule, detection and recovery side by side."""

from __future__ import annotations

from certmask.app.canvas import framed_picture, picture_uri, with_patch
from certmask.app.findings import picture
from certmask.app.patching import NETWORK, PUBLISHED, Answered, Patched
from certmask.certificate import Guarantee, class_name
from certmask.report.markup import Markup, tag

ROLES = {
    Guarantee.NONE: "undefended model",
    Guarantee.PUBLISHED: "published rule",
    Guarantee.DETECTION: "detection",
    Guarantee.RECOVERY: "recovery",
}
MADE = {NETWORK: "against the model alone", PUBLISHED: "against the published rule"}


def confronted(found: Patched) -> Markup:
    """The clean photo and the patched one, then what each says about both."""
    cards = [_card(ROLES[one.guarantee], one, found) for one in found.answers]
    note = f"{found.passes:,} passes of the defences, {found.seconds:.1f} s."
    return tag(
        "div",
        tag("h3", "With the patch, they say"),
        tag("p", _circumstances(found), class_="cm-note"),
        tag("div", *cards, class_="cm-cards"),
        *(_broken(one) for one in found.answers if one.broken),
        _pictures(found),
        tag("p", note, class_="cm-note"),
        class_="cm",
    )


def _circumstances(found: Patched) -> str:
    """Who was asked about what, and what the patch was made against."""
    threat, several = found.question.threat, found.question.count > 1
    left_out = " The published rule knows one patch only, and is not asked; one is put down here." if several else ""
    made = MADE.get(found.kind, "against nobody in particular")
    return (
        f"{found.question.model}; proofs are against {threat}.{left_out} This patch was made {made}: where nothing is "
        "certified, “not changed” says nothing about patches made against that defence."
    )


def _pictures(found: Patched) -> Markup:
    """The photo before and after, and what the model is shown of it then."""
    size, (top, left) = f"{found.patch.height}×{found.patch.width}", found.corner
    where, image = f"row {top}, column {left}", (found.clean.height, found.clean.width)
    after = with_patch(found.sharp, found.picture, found.corner, found.patch.size)
    told = f"{image[0]}×{image[1]} pixels"
    return tag(
        "div",
        picture(picture_uri(found.sharp), f"the clean photo, {found.photo}", "clean"),
        picture(
            framed_picture(after, image, found.corner, found.patch.size),
            f"the photo with a {size} patch at {where}",
            f"with a {size} patch at {where}",
        ),
        picture(
            picture_uri(found.picture),
            f"the model's input, {told}, with the patch",
            f"what the model sees, {told}",
            "cm-pixels",
        ),
        class_="cm-pair",
    )


def _card(role: str, one: Answered, found: Patched) -> Markup:
    """One defence: its answer about the patched photo, the one before, and what was promised."""
    before, answer = (class_name(outcome.label, found.names) for outcome in (one.clean, one.patched))
    tone, said = _became(one)
    badge = tag("span", said, class_=f"cm-badge cm-{tone}")
    label = tag("span", f"(says {answer})") if one.patched.alert else tag("strong", answer)
    return tag(
        "section",
        tag("h4", role),
        tag("p", one.rule, class_="cm-note"),
        tag("p", *((badge, " ", label) if one.patched.alert else (label, " ", badge))),
        tag("p", f"Without the patch: {before}{', with an alert' if one.clean.alert else ''}.", class_="cm-note"),
        tag("p", _promise(one, class_name(one.label, found.names)), class_="cm-note"),
        class_=f"cm-card cm-card-{tone}",
        aria_label=role,
    )


def _became(one: Answered) -> tuple[str, str]:
    """What the patch did to an answer: how it is coloured, and in a word."""
    if one.patched.alert:
        return "alert", "ALERT"
    if one.changed:
        return "wrong", "changed by the patch"
    return ("proved" if one.certified else "unproved"), "not changed"


def _promise(one: Answered, name: str) -> str:
    """What was known about the clean photo before anybody attacked it."""
    if one.guarantee is Guarantee.NONE:
        return "Nothing was promised."
    if one.guarantee is Guarantee.PUBLISHED:
        passed = "passes" if one.passed else "fails"
        return f"The clean photo {passed} its published test, which promises nothing against an attacker."
    if not one.certified:
        return "The clean photo is not certified: nothing was promised."
    promise = f"it says {name}" if one.guarantee is Guarantee.RECOVERY else f"it says {name} or raises an alert"
    return f"Certified {one.guarantee.value}: whatever such a patch shows on this photo, {promise}."


def _broken(one: Answered) -> Markup:
    words = f"{one.rule} was certified for this photo, and this patch broke it: a fault in certmask, please report it."
    return tag("p", words, class_="cm-refused", role="alert")
