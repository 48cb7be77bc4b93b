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
        "replace(choices, patch=self.sticker.typed) if self.sticker else choices",
        "choices",
        ("test_sticker.py::test_each_photo_is_asked_about_what_its_patch_reaches",),
    ),
]
