"""What the page says about a patched photo: bare model, published rule, detection and recovery side by side."""

from __future__ import annotations

from certmask.app.canvas import framed_picture
from certmask.app.findings import picture
from certmask.app.patching import Answered, Patched
from certmask.certificate import Guarantee, class_name
from certmask.report.markup import Markup, tag

ROLES = ("undefended model", "published rule", "detection", "recovery")


def confronted(found: Patched) -> Markup:
    """The clean photo and the patched one, then what each says about the latter."""
    name = class_name(found.label, found.names)
    size = f"{found.patch.height}×{found.patch.width}"
    where = f"row {found.corner[0]}, column {found.corner[1]}"
    clean = picture(framed_picture(found.clean, found.corner, found.patch.size), f"the clean photo, {name}", "clean")
    after = picture(
        framed_picture(found.picture, found.corner, found.patch.size),
        f"the photo with a {size} patch at {where}",
        f"with a {size} patch at {where}",
    )
    cards = [_card(role, one, found) for role, one in zip(ROLES, found.answers, strict=True)]
    note = f"{found.passes:,} passes, {found.seconds:.1f} s. Clean, recovery answers {name}: this counts as right here."
    return tag(
        "div",
        tag("div", clean, after, class_="cm-pair"),
        tag("div", *cards, class_="cm-cards"),
        *(_broken(one) for one in found.answers if one.broken),
        tag("p", note, class_="cm-note"),
        class_="cm",
    )


def _card(role: str, one: Answered, found: Patched) -> Markup:
    """One defence: its answer about the patched photo, and what was promised about it."""
    alert, fooled = one.patched.alert, one.fooled(found.label)
    tone = "alert" if alert else "wrong" if fooled else "proved" if one.certified else "unproved"
    answer = class_name(one.patched.label, found.names)
    said = "ALERT" if alert else "fooled" if fooled else "right"
    label = f"(says {answer})" if alert else answer
    return tag(
        "section",
        tag("h4", role),
        tag("p", one.rule, class_="cm-note"),
        tag("p", tag("strong", label), " ", tag("span", said, class_=f"cm-badge cm-{tone}")),
        tag("p", _promise(one), class_="cm-note"),
        class_="cm-card",
        aria_label=role,
    )


def _promise(one: Answered) -> str:
    if one.guarantee is Guarantee.NONE:
        return "nothing was promised"
    if one.guarantee is Guarantee.PUBLISHED:
        passed = "the clean photo passes its test" if one.clean.certified else "the clean photo fails its test"
        return f"{passed}, which promises nothing against an attacker"
    if not one.clean.certified:
        return "the clean photo is not certified: nothing was promised"
    promise = "answers rightly" if one.guarantee is Guarantee.RECOVERY else "answers rightly or raises an alert"
    return f"the clean photo is certified: whatever the patch, it {promise}"


def _broken(one: Answered) -> Markup:
    words = f"{one.rule} was certified for this photo, and this patch broke it: a fault in certmask, please report it."
    return tag("p", words, class_="cm-refused", role="alert")
