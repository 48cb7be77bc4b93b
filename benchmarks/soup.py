"""The mean of the weights of several trained networks that began with the same ones (a soup, Wortsman et al. 2022).

    python -m benchmarks.soup models/soup models/worst/model.safetensors models/recalled/model.safetensors …

Its card has the recipe of the first, what all of them cost in training, and no figures: examine.py finds those.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from certmask.zoo import Card, load_checkpoint, save_model

COSTS = ("training_passes", "teacher_passes", "training_seconds")


def soup_card(cards: Sequence[Card]) -> Card:
    """The card of the mean of these networks."""
    names = ", ".join(card.sha256[:16] for card in cards)
    metrics = [card.metrics for card in cards]
    costs = {key: round(sum(m.get(key, 0) for m in metrics), 1) for key in COSTS if any(key in m for m in metrics)}
    return replace(cards[0], sha256="", data={**cards[0].data, "start": f"mean of {names}"}, metrics=costs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    options = parser.parse_args()
    networks, cards = zip(*(load_checkpoint(path) for path in options.models), strict=True)
    states = [network.state_dict() for network in networks]
    networks[0].load_state_dict(
        {key: torch.stack([s[key].float() for s in states]).mean(0).to(own.dtype) for key, own in states[0].items()}
    )
    options.out.mkdir(parents=True, exist_ok=True)
    save_model(networks[0], soup_card(cards), options.out / "model.safetensors", half=True)


if __name__ == "__main__":
    main()
