"""Faults of models that people bring: the certified function is not the one that its makers have."""

from __future__ import annotations

from mutation.fault import Fault

BROUGHT = [
    Fault(
        "weights beside the file",
        "weights that lie in a file beside an ONNX model are left out of its digest",
        "backends/graph.py",
        "digest = files_digest([path, *outside])",
        "digest = files_digest([path])",
        ("test_onnx.py::test_weights_in_a_file_beside_it",),
    ),
    Fault(
        "another way to see",
        "a Hugging Face folder is taken although certmask makes other pixels of a photo than its own processor",
        "zoo/processor.py",
        "if not change <= SAME:",
        "if change > 1e9:",
        ("test_huggingface.py::test_what_cannot_be_followed_is_refused",),
    ),
    Fault(
        "weights made up",
        "a layer for which a Hugging Face folder has no weights gets random ones",
        "zoo/huggingface.py",
        'for what in ("missing", "mismatched"):',
        'for what in ("mismatched",):',
        ("test_huggingface.py::test_a_folder_that_is_not_whole_is_refused",),
    ),
    Fault(
        "half a batch for another",
        "the pictures that fill up an ONNX model's fixed batch are answered in the place of others",
        "backends/onnxruntime.py",
        "self._computed(part, step)[: len(part)]",
        "self._computed(part, step)[-len(part) :]",
        ("test_onnx.py::test_a_fixed_batch_is_filled_up",),
    ),
]
