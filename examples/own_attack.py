"""An attack of your own on a network and on its defence. Run: python examples/own_attack.py"""

from itertools import product

import torch
from torch import Tensor

import certmask as cm
from certmask.attacks import Job, classifier_judge, defence_judge
from certmask.attacks.pictures import paste


class Sticker(cm.Attack):
    """Slides a sticker of one plain colour over a picture; leaves it where the true class looks least probable.

    It needs nothing but probabilities. Whether it worked is for a judge to say, and what it hands over is checked:
    every pixel outside of one rectangle of the patch's size must be as it was.
    """

    def __init__(self, classifier: cm.Classifier, step: int = 6) -> None:
        self.classifier, self.step = classifier, step

    def run(self, job: Job, seed: int) -> tuple[Tensor, Tensor]:
        rows, columns = (range(0, positions, self.step) for positions in job.patch.positions(job.size))
        pictures, corners = job.images, torch.zeros(len(job), 2, dtype=torch.long)
        least = torch.full((len(job), 1), torch.inf)
        for top, left, *colour in product(rows, columns, *[(0.0, 1.0)] * 3):
            places = torch.tensor([[top, left]]).expand(len(job), 2) if job.corners is None else job.corners
            stickers = torch.tensor(colour).view(1, 3, 1, 1).expand(len(job), 3, *job.patch.size)
            tried = paste(job.images, stickers, places)
            probable = self.classifier(tried).gather(1, job.labels[:, None])
            better = probable < least
            least = torch.where(better, probable, least)
            pictures = torch.where(better[:, :, None, None], tried, pictures)
            corners = torch.where(better, places, corners)
        return pictures, corners


def by_colour(images: Tensor) -> Tensor:
    """A network that names the colour that a picture has most of; put yours here."""
    return 50 * images.mean(dim=(2, 3))


if __name__ == "__main__":
    chance = torch.Generator().manual_seed(0)
    colours, noise = torch.rand(20, 3, 1, 1, generator=chance), torch.rand(20, 3, 32, 32, generator=chance)
    images, labels = 0.3 + 0.1 * colours + 0.4 * noise, colours.flatten(1).argmax(dim=1)

    patch = cm.Patch(6, 6)
    classifier = cm.Classifier(by_colour, 32, batch=64)
    shield = cm.Defence(classifier, cm.spread_cover(32, patch, mask=14, fold=2), cm.JuryRecovery("aligned"))
    certified = torch.tensor([certificate.holds for certificate in shield.certify(images, labels).certificates])
    print(f"{int(certified.sum())} of {len(images)} pictures are certified")

    attack, job = Sticker(classifier), Job(images, labels, patch)
    judges = {"network": classifier_judge(classifier), "defence": defence_judge(shield.engine, shield.defence)}
    for name, judge in judges.items():
        fooled = attack(job, judge).fooled(labels)
        print(f"the {name} is fooled by {int(fooled.sum())}, {int((fooled & certified).sum())} of them certified")
