"""Certify photos of several sizes against a sticker in the photo itself: python examples/photo_patch.py

A photo is resized before the model sees it, so that the same sticker is larger in the input of a small photo.
"""

from __future__ import annotations

from pathlib import Path

import certmask as cm

PHOTOS, SIDES = Path("runs/photos"), (48, 64, 96, 160)


def stored_photos() -> None:
    """Four demo photos, as files of other sizes in a folder per class."""
    names = [[name] for name in cm.load_classifier("resnet26-cifar10").class_names]
    for sample, side in zip(cm.load_dataset("demo-cifar10", names, 1.0).samples, SIDES, strict=False):
        path = PHOTOS / str(sample.label) / f"{side}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        sample.photo().resize((side, side)).save(path)


def main() -> None:
    stored_photos()
    run = cm.certify("resnet26-cifar10", PHOTOS, "jury-detection", patch_in_photo=8, batch=8, precision="fp32")
    print(run.threat("jury-detection"))
    for row in sorted(run.rows, key=lambda row: row["photo"]["size"]):
        photo, outcome = row["photo"], row["defences"]["jury-detection"]
        (height, width), (tall, wide) = photo["patch"], photo["threat"]
        said = f"certified up to {photo['side']}×{photo['side']}" if outcome["certified"] else "not certified"
        print(f"{row['image']}: {height}×{width} of its pixels reach at most {tall}×{wide} of the input: {said}")


if __name__ == "__main__":
    main()
