"""What rules cost beside the network: nine defences of our Table 1 on invented votes, with and without the short way.

    python -m benchmarks.rules --out results/speed/rules-cpu.json

The long way looks at all probabilities of every pool; the short way does so only where first classes leave a doubt.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from certmask.backends.devices import device_name
from certmask.defences import MaskedDefence
from certmask.experiments import EXPERIMENTS
from certmask.experiments.trials import built_defence
from certmask.geometry import IntArray
from certmask.passes import Ballot
from certmask.results.file import provenance
from certmask.rules.aggregates import MeanProbability
from certmask.rules.rule import Asking, T
from certmask.votes import Votes, VoteStore

IMAGE, CLASSES, LABEL = (224, 224), 1000, 7
FAVOURS = (4.0, 6.0, 10.0)
"""How much stronger the label's logit is: no certificate, some doubt, every certificate."""
COHORTS = (1, 32)
"""Pictures that the rules look at together: as on a CPU, as on a GPU."""


class Invented:
    """Votes about a cohort, made up as they are asked for; only the rules' own time is counted."""

    def __init__(self, defence: MaskedDefence, pictures: int, favour: float, generator: torch.Generator) -> None:
        logits = torch.randn(4096, CLASSES, generator=generator)
        logits[:, LABEL] += favour
        self._pool, self._generator = logits.softmax(dim=1), generator
        ballot = Ballot(defence.cover)
        self.votes = Votes(ballot, VoteStore(pictures, ballot.passes, CLASSES))
        self.seconds = 0.0

    def run(self, asking: Asking[T]) -> T:
        while True:
            begin = time.perf_counter()
            try:
                missing = self.votes.store.missing(next(asking))
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            finally:
                self.seconds += time.perf_counter() - begin
            rows = torch.randint(len(self._pool), (len(missing),), generator=self._generator)
            self.votes.store.add(missing, self._pool[rows])


def seconds_per_image(defences: Sequence[MaskedDefence], pictures: int, favour: float) -> tuple[float, float]:
    """The rules' time for one image under all defences in a cohort, and how many certificates hold."""
    generator = torch.Generator().manual_seed(0)
    total, held = 0.0, 0
    for defence in defences:
        invented = Invented(defence, pictures, favour, generator)
        invented.run(defence.rule.deciding(invented.votes))
        held += int(invented.run(defence.rule.certifying(invented.votes, np.full(pictures, LABEL))).sum())
        total += invented.seconds
    return total / pictures, held / pictures


def nothing_sure(*arguments: Any) -> IntArray:
    """Stands in for ``Aggregate.least``: leaves every pool in doubt."""
    return np.full(arguments[2].shape[:2], -1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    table1 = EXPERIMENTS["table1"]
    (labelled,) = (p for p in table1.patches_on("imagenet") if p.side == 32)
    defences = [built_defence(declared, labelled, IMAGE) for declared in table1.defences(labelled)]
    seconds_per_image(defences, 1, FAVOURS[-1])
    rows = []
    for favour, pictures in product(FAVOURS, COHORTS):
        short = min(seconds_per_image(defences, pictures, favour) for _ in range(options.repeat))
        with patch.object(MeanProbability, "least", nothing_sure):
            long = min(seconds_per_image(defences, pictures, favour) for _ in range(options.repeat))
        assert short[1] == long[1], "expected the same certificates either way"
        rows.append({"favour": favour, "cohort": pictures, "certificates": short[1], "short_seconds": short[0],
                     "long_seconds": long[0], "ratio": long[0] / short[0]})  # fmt: skip
        print(rows[-1])
    where = {"device": device_name(torch.device("cpu")), "versions": provenance()}
    content = {**where, "defences": [defence.name for defence in defences], "rows": rows}
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
