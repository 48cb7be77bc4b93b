"""Faults in threats beyond one square: several patches, rectangles of any shape, patches of unknown size."""

from __future__ import annotations

from mutation.fault import Fault

TWO_PATCHES = "test_threats_exhaustive.py::test_every_attack_with_two_patches"
OF_ITS_SIZE = "test_threats_exhaustive.py::test_every_attack_of_a_certified_size"
DEFINITION = "test_threats_exhaustive.py::test_rules_agree_with_the_definition"
EVERY_BOX = "test_threats.py::test_every_box_of_a_family_is_hidden_on_every_level"

THREATS = [
    Fault(
        "several patches taken for one",
        "hypotheses have one place, though there may be several patches",
        "rules/levels.py",
        "self.sets = place_sets(len(boxes), cover.threat.count)",
        "self.sets = place_sets(len(boxes), 1)",
        (TWO_PATCHES,),
    ),
    Fault(
        "the largest unions left out",
        "two hypotheses without a common place are not judged together in a proof",
        "rules/levels.py",
        "range(count + 1, min(2 * count, places) + 1)",
        "range(count + 1, min(2 * count, places))",
        (DEFINITION,),
    ),
    Fault(
        "a set hidden in part",
        "a vote on several places hides only the first of them",
        "rules/levels.py",
        "self.ballot.numbers(part[places, 0])",
        "self.ballot.numbers(part[places[..., :1], 0])",
        (TWO_PATCHES,),
    ),
    Fault(
        "a size certified against itself alone",
        "a patch of a size is certified by duels with places of that size, though larger ones are deployed",
        "rules/levels.py",
        "(self._steps[self.opponents] == step).any(axis=1)",
        "(self._steps[self.opponents] == step).all(axis=1)",
        (OF_ITS_SIZE,),
    ),
    Fault(
        "sizes in another order",
        "the sizes of a cover's patches are taken to come in the order of the threat's",
        "rules/levels.py",
        "steps.index(patch) if patch in steps else NONE for patch in cover.patches",
        "n for n, patch in enumerate(cover.patches)",
        ("test_threats_exhaustive.py::test_sizes_may_come_in_any_order",),
    ),
    Fault(
        "a size too large",
        "an image is said to be certified for the size after the one that was proved",
        "rules/proof.py",
        "proved[found.holds] = step + 1",
        "proved[found.holds] = step + 2",
        (OF_ITS_SIZE,),
    ),
    Fault(
        "a strip too short",
        "rectangles of exactly the area are left out",
        "threat.py",
        "min(image[1], self.area // height)",
        "min(image[1], max((self.area - 1) // height, 1))",
        ("test_threats.py::test_boxes_of_an_area_are_all_there_and_none_too_many",),
    ),
    Fault(
        "a bounding box too narrow",
        "boxes that share masks are bounded by the narrowest of them",
        "geometry/rectangles.py",
        "box = boxes[last][0], boxes[first][1]",
        "box = boxes[last][0], boxes[last][1]",
        ("test_threats.py::test_masks_for_any_rectangle_beside_those_for_a_square",),
    ),
    Fault(
        "masks of another shape",
        "a part of a level hides the locations of another patch",
        "covers/cover.py",
        "cells = find_cells(self.image, patch, grids)",
        "cells = find_cells(self.image, self.patches[0], grids)",
        (EVERY_BOX,),
    ),
    Fault(
        "a threat that no patch holds",
        "a box need only fit into a patch along one axis",
        "covers/cover.py",
        "height <= patch.height and width <= patch.width for patch",
        "height <= patch.height or width <= patch.width for patch",
        ("test_threats.py::test_what_does_not_hold_a_threat_is_no_cover",),
    ),
    Fault(
        "a size that was not proved",
        "a certificate is about the largest size, whatever was proved",
        "defences/protocol.py",
        "return [sides[step] for step in proofs.steps.tolist()]",
        "return [sides[-1] for _ in proofs.steps.tolist()]",
        ("test_threat_use.py::test_every_image_has_a_certificate_against_its_own_size",),
    ),
]
