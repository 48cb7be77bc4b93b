"""A rule of your own in ten minutes, and how a wrong one is found out. Run: python examples/own_rule.py

Deploy it with ``cm.Defence(model, cover, Unanimity())``; CONTRIBUTING.md says how to bring it into the house.
"""

from itertools import product

import numpy as np
import torch

import certmask as cm
from certmask.attacks import Harm
from certmask.geometry import IntArray
from certmask.rules.rule import Asking, majority
from certmask.votes import BoolArray


class Unanimity(cm.Rule):
    """Answer if all masks agree, else raise an alert.

    Certificate: in every jury (the masks that cover one place) some mask votes for the label. A patch there leaves
    that vote alone, so the masks agree on the label or not at all.
    """

    name = "unanimity"
    guarantee = cm.Guarantee.DETECTION

    def deciding(self, votes: cm.Votes) -> Asking[list[cm.Decision]]:
        singles = votes.ballot.singles[None]  # one pass per mask, the same for every picture of the cohort
        yield votes.ask(singles)  # when this goes on, their votes are there
        labels = votes.heads(singles).labels  # [pictures, masks]
        return [cm.Decision(majority(own), alert=bool((own != own[0]).any())) for own in labels]

    def certifying(self, votes: cm.Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        true = votes.heads(singles).wins(labels[:, None], self.margin)  # [pictures, masks]
        juries = votes.cover.districts.juries  # [districts, largest jury], filled up with -1
        spared = np.asarray((true[:, juries] & (juries >= 0)).any(axis=2))  # [pictures, districts]
        return np.asarray(spared.all(axis=1))


class Hopeful(Unanimity):
    """Wrong: certifies as soon as half of the masks vote for the label, though a jury may be the other half."""

    def certifying(self, votes: cm.Votes, labels: IntArray) -> Asking[BoolArray]:
        singles = votes.ballot.singles[None]
        yield votes.ask(singles)
        return np.asarray(votes.heads(singles).wins(labels[:, None], self.margin).mean(axis=1) >= 0.5)


if __name__ == "__main__":
    # Three places for a patch of 1×2 pixels, each in two of four masks; every table of votes for three classes.
    cover = cm.spread_cover(image=(1, 4), patch=cm.Patch(1, 2), mask=(1, 3), fold=(1, 2))
    tables = [cm.Votes.from_table(cover, torch.eye(3)[list(t)]) for t in product(range(3), repeat=len(cover))]
    for rule in (Unanimity(), Hopeful()):
        certified = [votes for votes in tables if rule.certify(votes, label=0).holds]
        attacks = [cm.worst_case(votes, rule, label=0) for votes in certified]  # on so few votes, every attack there is
        beaten = sum(attack.harm is Harm.WRONG for attack in attacks)
        print(f"{type(rule).__name__}: {len(certified)} of {len(tables)} tables certified, {beaten} of these beaten")
