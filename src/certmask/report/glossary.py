"""What the words of a report mean."""

from __future__ import annotations

from certmask.certificate import BASES, Guarantee

TERMS = {
    "patch": "A rectangle of the model's input whose pixels the attacker chooses freely. Its size is known, its place "
    "and what it shows are not.",
    "mask": "A rectangle that is painted over, so that the classifier does not see what is under it.",
    "cover": "A set of masks such that the patch, wherever it is, lies wholly under at least one of them.",
    "fold": "How many masks of a cover hide the patch at one place. A k-fold cover hides it at every place under at "
    "least k masks; 2×2 stands for k = 4, two along each side.",
    "jury": "The masks that hide the patch at one place. Under them the classifier sees the same pixels with and "
    "without the patch, so the patch cannot change how its own jury votes; it may change every other vote.",
    "district": "All places with the same jury. A proof looks at every district, and so at every place.",
    "place": "A district or, where a cover has several levels, a rectangle of the patch's places that masks of every "
    "level hide: all its places are judged together.",
    "level": "Masks of one size. Where a cover has several levels, every place and every pair of places is judged by "
    "large masks first, which are few; where their vote is not clear, by smaller ones, which hide less.",
    "lead": "By how much a class is ahead of the next one, on average over the votes that judge a place: from 0 to 1 "
    "where probabilities are averaged. Negative: another class is ahead.",
    "basis": f"What an answer rests on. Unanimous: {BASES['unanimous']}. Unbeaten: {BASES['unbeaten']}, under votes "
    "that hide both. Bare, or majority: no place that claims another class is unbeaten, so that the unmasked picture "
    "answers, or what most places claim. The answer about a certified photo without a patch is unanimous, unless the "
    "size of patches is unknown.",
    "weakest": "The place, or pair of places, at which the true class leads by least in a proof, with the level that "
    "settled it; where there is no proof, the place at which it failed. An attacker may want to begin there.",
    "vote": "The class that the classifier names under one mask, or under two at once.",
    "dissent": "Votes, under one mask each, for another class than the defence answers.",
    "pairs, duels": "Two masks at once. Where districts disagree about the class, two of them duel: the votes under a "
    "mask of each decide which one is struck out. Proofs of recovery look at the pairs; aligned pairs are "
    "those within one grid of masks, which are fewer.",
    "margin": "By how much the winning class must lead for a proof to count it. It makes up for hardware that rounds "
    "the same sum differently from one time to the next.",
    "pass": "One run of the classifier on one masked picture. Passes per image are counted to answer, as a deployed "
    "defence does, and to prove, as an evaluation does; a proof that fails stops early.",
    "clean accuracy": "Images without a patch that are answered rightly and without an alert.",
    "certified": "Proved: no patch of the given size, whatever it shows and wherever it is, can break the promise for "
    "this image. Images without proof may be safe or not.",
    "certified recovery": f"Images for which it is proved that {Guarantee.RECOVERY.sentence}.",
    "certified detection": f"Images for which it is proved that {Guarantee.DETECTION.sentence}. Worth as much as "
    "its false alerts are few. Never to be added to recovery.",
    "certified and quiet": "Images with certified detection that are answered rightly and without an alert while they "
    "carry no patch. A rule may certify more than that where it warns of clean images, too.",
    "certified accuracy": "What papers call the certified part of all images. Here it always has the name of what is "
    "promised: certified recovery or certified detection.",
    "alert": "A warning that the picture may carry a patch. The answer beside it is a guess.",
    "false alerts": "Images without a patch on which an alert is raised.",
    "published test": "Images on which all masks vote for the true class, which is, as we read it, what the CertMask "
    "paper calls certified. It gives no guarantee against an adaptive attacker.",
}
