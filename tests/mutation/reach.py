"""Faults in what a patch in the stored photo reaches."""

from __future__ import annotations

from mutation.fault import Fault

NEVER_TOO_SMALL = "test_reach.py::test_a_box_is_never_too_small_and_hardly_too_large"

REACH = [
    Fault(
        "a bound that is not Pillow's",
        "a resized pixel is thought not to read the last pixel of the photo that it reads",
        "data/reach.py",
        "np.minimum(centres + support + 0.5, length)",
        "np.minimum(centres + support - 0.5, length)",
        (NEVER_TOO_SMALL,),
    ),
    Fault(
        "reduced photos are read as enlarged ones",
        "a pixel of a reduced photo is thought to read no more than one of an enlarged photo",
        "data/reach.py",
        "SUPPORTS[resampling] * max(scale, 1.0)",
        "SUPPORTS[resampling]",
        (NEVER_TOO_SMALL,),
    ),
    Fault(
        "a patch that does not turn",
        "a patch is looked for where it is in the file, though EXIF turns the photo upside down",
        "data/reach.py",
        "        if self.mirrored:\n",
        "        if False:\n",
        ("test_reach.py::test_the_box_turns_with_the_photo",),
    ),
    Fault(
        "chroma ends with its block",
        "a patch that was compressed with the photo is thought to stay inside its blocks, though chroma is blurred",
        "data/reach.py",
        "Blocks((16, 16), (1, 1))",
        "Blocks((16, 16))",
        ("test_reach.py::test_jpeg_carries_a_change_no_farther_than_its_blocks",),
    ),
    Fault(
        "a reach rounded down",
        "the patch that a defence is made for is rounded down from what the one in the photo reaches",
        "data/reach.py",
        "min(-(-side // s) * s, most)",
        "min(side // s * s, most)",
        ("test_reach.py::test_sizes_that_are_asked_for",),
    ),
    Fault(
        "a reach that is told and not used",
        "predict says what a patch in the photo reaches, and certifies against the default patch",
        "cli/predict.py",
        "replace(choices, patch=typed(self.sticker.threat)) if self.sticker else choices",
        "choices",
        ("test_sticker.py::test_each_photo_is_asked_about_what_its_patch_reaches",),
    ),
    Fault(
        "one size for all photos",
        "certify proves every photo against the smallest patch in the input that one in some photo becomes",
        "certification.py",
        "one.unproved if threat is None else one.of(threat)",
        "one.unproved if threat is None else one.classes[0]",
        ("test_photo_runs.py::test_each_row_is_that_of_a_run_against_what_its_patch_reaches",),
    ),
    Fault(
        "a photo without a defence that is certified",
        "a photo all of whose input the patch reaches is certified against the largest patch with a defence",
        "certification.py",
        "return sticker.threat if families[0].of(sticker.threat) else None",
        "return families[0].classes[-1].threat if sticker.whole else sticker.threat",
        ("test_photo_runs.py::test_only_what_a_class_holds_is_of_that_class",),
    ),
    Fault(
        "a side that is one too long",
        "the largest patch in the photo that a certificate is said to cover is the first that it does not",
        "data/reach.py",
        "    return fits\n",
        "    return fails\n",
        ("test_reach.py::test_the_largest_side_is_the_last_one_that_fits",),
    ),
    Fault(
        "a class that nobody has",
        "rows of a results file may name any patch in the input as what their certificate is against",
        "results/run.py",
        "if not all(threat in known for known in classes):",
        "if False:",
        ("test_photo_runs.py::test_what_cannot_be_true_is_refused",),
    ),
    Fault(
        "a patch beyond its box",
        "the gauntlet puts patches in photos at places from which they reach beyond the box that is looked at",
        "attacks/scene.py",
        "(begin >= low) & (end <= high)",
        "(begin >= low)",
        ("test_photo_attack.py::test_every_corner_leads_to_a_place_that_touches_nothing_else",),
    ),
]
