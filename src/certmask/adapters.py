"""A defence as foolbox, ART and other tools see a model: pictures in, one score per class out, no gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from certmask.attacks.means import check_allowed, patches_to_try
from certmask.attacks.pictures import checked_corners, paste
from certmask.deployed import Answer, Defence
from certmask.errors import AttackError
from certmask.images import checked_images
from certmask.threat import Patch, Size, checked_size


class BlackBox(nn.Module):
    """Scores ``[n, classes + 1]``: 1 for the class that the defence answers, or for the last one if it raises an alert.

    shield: the defence to attack
    picture: a clean one ``[3, height, width]``; then patches ``[n, 3, patch height, patch width]`` are taken in place
        of pictures and put on it, so that whatever an attack finds lies within the threat
    corner: where they are put, (top, left); of several patches at once, as many corners: their contents are then taken
        side by side, in one picture that is so many times as wide
    patch: the size of a patch, where the threat leaves a choice; by default the largest, or the squarest
    """

    def __init__(
        self,
        shield: Defence,
        picture: Tensor | None = None,
        corner: Size | Sequence[Size] = (0, 0),
        patch: Size | int | None = None,
    ) -> None:
        super().__init__()
        self.shield, self.alert = shield, shield.classifier.classes
        self.classes = self.alert + 1
        image, threat = shield.defence.image, shield.defence.threat
        own = patches_to_try(threat, image)[0]
        self.patch = own if patch is None else Patch(*checked_size(patch, "patch"), own.count)
        check_allowed(self.patch, threat, image)
        self.picture = None if picture is None else checked_images(picture[None], image)
        corners = [corner] * own.count if own.count > 1 and np.ndim(corner) == 1 else corner
        self.corner = checked_corners(torch.tensor([corners]), 1, self.patch, image)
        height, width = self.patch.size
        self.shape = (3, *(image if picture is None else (height, self.patch.count * width)))
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        """What foolbox's ``PyTorchModel`` calls."""
        answer = self.answer(inputs)
        chosen = torch.where(answer.alerts, self.alert, answer.labels)
        return one_hot(chosen, self.classes).to(inputs.device, torch.float32)

    def predict(self, inputs: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """What ART's ``BlackBoxClassifier`` calls."""
        scores: npt.NDArray[np.float32] = self(torch.from_numpy(np.asarray(inputs, dtype=np.float32))).numpy()
        return scores

    def answer(self, inputs: Tensor) -> Answer:
        """The defence's own answer; values that leave [0, 1] are clipped, as a camera would."""
        return self.shield(self.pictures(inputs))

    def pictures(self, inputs: Tensor) -> Tensor:
        """The pictures that the defence sees."""
        if inputs.ndim != 4 or tuple(inputs.shape[1:]) != self.shape:
            raise AttackError(
                f"expected inputs of shape [n, {', '.join(map(str, self.shape))}], got {list(inputs.shape)}"
            )
        inputs = inputs.detach().cpu().float().clamp(0, 1)
        if self.picture is None:
            return inputs
        pictures = self.picture.expand(len(inputs), -1, -1, -1)
        if self.patch.count > 1:
            inputs = torch.stack(inputs.chunk(self.patch.count, dim=3), dim=1)
        return paste(pictures, inputs, self.corner.expand(len(inputs), *self.corner.shape[1:]))

    def fooled(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Where another class than the true one is answered and no alert is raised, ``[n]``: what an attacker wants."""
        answer = self.answer(inputs)
        return (answer.labels != labels.cpu()) & ~answer.alerts
