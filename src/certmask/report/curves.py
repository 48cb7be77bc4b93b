"""Learning curves as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from certmask.report.drawing import COLOURS, save_figure


def draw_curves(history: Sequence[dict[str, float]], title: str, path: Path) -> None:
    """Left: training loss. Right: accuracy on (occluded) training and (clean) validation photos."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    epochs = [entry["epoch"] for entry in history]
    left.plot(epochs, [entry["loss"] for entry in history], marker="o", color=COLOURS[0])
    left.set(xlabel="epoch", ylabel="training loss (nats)")
    for number, key in enumerate(("training_accuracy", "validation_accuracy")):
        if key in history[0]:
            shares = [100 * entry[key] for entry in history]
            right.plot(epochs, shares, marker="o", color=COLOURS[number], label=key.replace("_", " "))
    right.set(xlabel="epoch", ylabel="accuracy (%)")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    save_figure(figure, path)
