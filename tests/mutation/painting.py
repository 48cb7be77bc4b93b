"""Faults of the masks that are painted, and of the batches that they travel in."""

from __future__ import annotations

from mutation.fault import ONE_FACT, PAINTED, Fault

PAINTING = [
    Fault(
        "mask a pixel short",
        "a mask leaves the last row and column that it should hide",
        "engine/masking.py",
        "row[low:high] = True",
        "row[low : high - 1] = True",
        (ONE_FACT, PAINTED),
    ),
    Fault(
        "mask a pixel to the right",
        "every mask is painted one pixel beside its place",
        "engine/masking.py",
        "row[low:high] = True",
        "row[low + 1 : high + 1] = True",
        (ONE_FACT, PAINTED),
    ),
    Fault(
        "wrapped mask clipped",
        "the part of a mask beyond the border is not painted on the other side",
        "engine/masking.py",
        "for low, high in pieces:",
        "for low, high in pieces[-1:]:",
        (ONE_FACT, PAINTED),
    ),
    Fault(
        "second mask forgotten",
        "of two masks only one is painted",
        "engine/forward.py",
        "(rows[:, :, :, None] & columns[:, :, None, :]).any(dim=1)",
        "rows[:, 0, :, None] & columns[:, 0, None, :]",
        (PAINTED,),
    ),
    Fault(
        "fill of the picture's mean",
        "masks are filled with the picture's mean colour, to which the patch contributes",
        "engine/forward.py",
        "torch.where(hidden[:, None], self._fill, images)",
        "torch.where(hidden[:, None], images.mean(dim=(2, 3), keepdim=True), images)",
        (ONE_FACT, PAINTED),
    ),
    Fault(
        "fill from the neighbours",
        "masks are filled with the pixels beside them",
        "engine/forward.py",
        "torch.where(hidden[:, None], self._fill, images)",
        "torch.where(hidden[:, None], images.roll(2, dims=3), images)",
        (ONE_FACT, PAINTED),
    ),
    Fault(
        "soft mask edges",
        "masks are resized after they were made, so the pixels at their edges shine through",
        "engine/forward.py",
        "return torch.where(hidden[:, None], self._fill, images)",
        "return torch.lerp(images, self._fill, torch.nn.functional.avg_pool2d(hidden[:, None].float(), 3, 1, 1))",
        (ONE_FACT, PAINTED),
    ),
    Fault(
        "resize before masking",
        "the picture is resized inside the defence before it is masked, so the patch smears beyond its rectangle",
        "engine/forward.py",
        "self._images[slot] = image",
        "self._images[slot] = torch.nn.functional.avg_pool2d(image[None], 3, 1, 1)[0]",
        (ONE_FACT, PAINTED),
    ),
    Fault(
        "resize after masking",
        "the masked picture is resized again, so another function votes than the certificate describes",
        "engine/forward.py",
        "self.classifier.probabilities(self._hide(images[slots], rows, columns))",
        "self.classifier.probabilities("
        "torch.nn.functional.avg_pool2d(self._hide(images[slots], rows, columns), 3, 1, 1))",
        (PAINTED,),
    ),
]

BATCHES = [
    Fault(
        "batch statistics",
        "the model is left in training mode, so a picture's answer depends on its neighbours in the batch",
        "backends/torch.py",
        "copy.deepcopy(model).eval().requires_grad_(False)",
        "copy.deepcopy(model).train().requires_grad_(False)",
        ("test_classifier.py::test_an_answer_does_not_depend_on_the_company", ONE_FACT),
    ),
    Fault(
        "scale of the batch",
        "masked pictures are scaled by the largest value of their batch",
        "engine/forward.py",
        "self.classifier.probabilities(self._hide(images[slots], rows, columns))",
        "self.classifier.probabilities((h := self._hide(images[slots], rows, columns)) / h.amax())",
        ("test_engine.py::test_same_votes_whatever_the_batch_composition", ONE_FACT),
    ),
    Fault(
        "kernels chosen by timing",
        "the compiled network sums in another order in each process, so another function serves than was certified",
        "classifier.py",
        'return {"deterministic": True} if hasattr(config, "deterministic") else {}',
        "return {}",
        ("test_engine.py::test_kernels_are_not_chosen_by_timing_them",),
    ),
    Fault(
        "NaN has a vote",
        "a patch that makes the network overflow stops the defence or wins by what is no number",
        "engine/forward.py",
        "outputs = torch.where(outputs.isfinite().all(dim=1, keepdim=True), outputs, 0.0)",
        "outputs = outputs + 0.0",
        ("test_engine.py::test_a_patch_that_makes_the_network_overflow_breaks_nothing",),
    ),
    Fault(
        "company unnoticed",
        "a model that looks at the other pictures of its batch is not refused",
        "classifier.py",
        "if change > COMPANY:",
        "if change > 1e9:",
        ("test_misuse.py::test_a_model_that_looks_at_its_neighbours_is_refused",),
    ),
    Fault(
        "batches of any shape",
        "the last batch is not filled up, so that hardware may round it differently",
        "engine/forward.py",
        "self.unpadded(_padded(slots, batch), _padded(pairs, batch))",
        "self.unpadded(slots, pairs)",
        ("test_faults.py::test_every_pass_travels_in_a_batch_of_one_shape",),
    ),
    Fault(
        "another picture's votes",
        "pictures that share a batch get the votes of the first of them",
        "engine/engine.py",
        "part = slice(begin, begin + len(taken))",
        "part = slice(0, len(taken)) if (begin := begin + len(taken)) else slice(0)",
        (PAINTED,),
    ),
    Fault(
        "another cover's masks",
        "with several defences in one run, a rule reads the votes of another defence's masks",
        "engine/engine.py",
        "return Votes(cover, store, self._index[cover])",
        "return Votes(cover, store)",
        ("test_faults.py::test_defences_that_share_a_run_read_their_own_masks",),
    ),
]
