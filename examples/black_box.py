"""Other libraries' black-box attacks on a defence: python examples/black_box.py

Needs foolbox (pip install 'certmask[demo]'); ART, where it is there (pip install adversarial-robustness-toolbox), too.
"""

import warnings
from importlib.util import find_spec

import torch
from foolbox.attacks.blended_noise import LinearSearchBlendedUniformNoiseAttack
from foolbox.models.pytorch import PyTorchModel
from torch import Tensor

import certmask as cm

PATCH, CORNER = cm.Patch(6, 6), (3, 20)


def brightest(images: Tensor) -> Tensor:
    """A network that a few bright pixels fool; put yours here."""
    return 20 * images.amax(dim=(2, 3))


def by_foolbox(box: cm.BlackBox, label: Tensor) -> bool:
    """Blends a grey patch with noise until the answer changes."""
    attack = LinearSearchBlendedUniformNoiseAttack(directions=5, steps=5)
    model = PyTorchModel(box, bounds=(0, 1), device="cpu")
    _, found, _ = attack(model, torch.full((1, *box.shape), 0.5), label, epsilons=None)
    return bool(box.fooled(found, label))


def by_art(box: cm.BlackBox, label: Tensor) -> bool:
    """HopSkipJump (Chen et al. 2020): walks along the border between two answers."""
    from art.attacks.evasion import HopSkipJump
    from art.estimators.classification import BlackBoxClassifier

    model = BlackBoxClassifier(box.predict, box.shape, box.classes, clip_values=(0, 1))
    attack = HopSkipJump(model, max_iter=1, max_eval=10, init_eval=5, init_size=5, verbose=False)
    return bool(box.fooled(torch.from_numpy(attack.generate(torch.full((1, *box.shape), 0.5).numpy())), label))


def main() -> None:
    warnings.simplefilter("ignore")  # foolbox warns where it finds nothing
    torch.manual_seed(0)
    labels = torch.tensor([0, 1, 2])
    images = 0.2 + 0.2 * torch.rand(3, 3, 32, 32)
    images[torch.arange(3), labels] += 0.3
    cover = cm.patchcleanser_cover(image=32, patch=PATCH, per_axis=2)
    classifier = cm.Classifier(brightest, 32, batch=16)
    for rule in ("undefended", "jury-recovery"):
        shield = cm.Defence(classifier, cover, rule)
        boxes = [cm.BlackBox(shield, image, CORNER) for image in images]  # patches in, answers about the picture out
        for attack in (by_foolbox, by_art) if find_spec("art") else (by_foolbox,):
            fooled = sum(attack(box, label[None]) for box, label in zip(boxes, labels, strict=True))
            print(f"{rule}: {fooled} of {len(images)} pictures fooled {attack.__name__.replace('_', ' ')}")


if __name__ == "__main__":
    main()
