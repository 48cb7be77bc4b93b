"""Faults of local evidence."""

from __future__ import annotations

from mutation.fault import Fault

NAN = "test_evidence.py::test_a_nan_reaches_exactly_the_cells_that_see_it"
FAR = "test_evidence.py::test_a_layer_whose_reach_is_not_known_is_an_error"
TOUCHED = "test_evidence.py::test_touched_cells_and_windows_are_those_of_the_reference"
BANDS = "test_evidence.py::test_bands_and_their_windows_wrap"
NOISE = "test_evidence.py::test_a_certificate_with_a_margin_survives_noise"
CLIPPED = "test_evidence_exhaustive.py::test_every_attack_on_clipped_lines"
MASKED = "test_evidence_exhaustive.py::test_every_attack_on_masked_lines"
NO_NUMBERS = "test_local.py::test_cells_that_give_no_numbers_say_the_least_and_silence_no_others"
REACH = "test_photo_patches.py::test_the_reach_is_that_of_the_weights_and_no_smaller"
EVERY_NOISE = "test_evidence_exhaustive.py::test_every_attack_with_every_noise_within_the_margin"

EVIDENCE = [
    Fault(
        "padding on the wrong side",
        "a convolution with padding is taken to look at cells that lie farther right than it does",
        "evidence/field.py",
        "np.arange(cells)[:, None] - padding + dilation",
        "np.arange(cells)[:, None] + padding + dilation",
        (NAN,),
    ),
    Fault(
        "one branch sees for all",
        "of branches that are added, the field of the first is taken for that of the sum",
        "evidence/field.py",
        "self.sees | other.sees",
        "self.sees",
        (NAN,),
    ),
    Fault(
        "columns taken for channels",
        "a layer that mixes columns is taken for one that mixes channels",
        "evidence/field.py",
        "if found.channels != 3:",
        "if found.channels > 3:",
        (FAR,),
    ),
    Fault(
        "bands that end at the border",
        "a band beyond the border is clipped where it goes on at the opposite border",
        "evidence/field.py",
        "pixels = pixels % extent if wraps else pixels",
        "pixels = pixels + 0 if wraps else pixels",
        (BANDS,),
    ),
    Fault(
        "touched by a smaller patch",
        "cells are found that a patch touches which is one pixel smaller than the declared one",
        "evidence/maps.py",
        "before[:, length:] >",
        "before[:, length - 1 : -1] >",
        (TOUCHED,),
    ),
    Fault(
        "windows too small",
        "windows that do not contain all that a patch touches are let through",
        "evidence/maps.py",
        "if not inside(sets, windows).any(axis=1).all():",
        "if not len(windows):",
        ("test_evidence.py::test_windows_that_are_too_small_are_an_error",),
    ),
    Fault(
        "a cell moves one class",
        "a touched cell is thought to take from the label or give to another class, not both",
        "evidence/clipped.py",
        "2 * ONE * sets.sizes",
        "ONE * sets.sizes",
        (CLIPPED,),
    ),
    Fault(
        "a lead that is all taken",
        "evidence is certified whose lead the patch can bring to nothing",
        "evidence/clipped.py",
        "return lead > beside(",
        "return lead >= beside(",
        (CLIPPED,),
    ),
    Fault(
        "clipped whatever the lead",
        "sums of clipped evidence are certified without the margin",
        "evidence/clipped.py",
        "sets.sizes + self.units",
        "sets.sizes",
        (NOISE,),
    ),
    Fault(
        "windows elsewhere stay",
        "windows that the patch does not touch are thought never to be left out of the label's evidence",
        "evidence/robust_masking.py",
        "> part * outside",
        "> whole * outside",
        (MASKED,),
    ),
    Fault(
        "no share for the attacker",
        "a class is thought to keep nothing of what the patch adds, though less than the threshold is left in",
        "evidence/robust_masking.py",
        "lead = (whole - part) * least",
        "lead = whole * least",
        (MASKED,),
    ),
    Fault(
        "every tie is won",
        "scores that are level are certified for a class that loses ties",
        "evidence/robust_masking.py",
        "wins_tie = labels[:, None] < torch",
        "wins_tie = labels[:, None] != torch",
        (MASKED,),
    ),
    Fault(
        "a share to the last digit",
        "a window that noise can push above the threshold is thought to stay",
        "evidence/robust_masking.py",
        "whole * (window + self.units) >",
        "whole * window >",
        (EVERY_NOISE,),
    ),
    Fault(
        "masked whatever the lead",
        "scores without their strongest windows are certified without the margin",
        "evidence/robust_masking.py",
        "> whole * self.units",
        "> 0",
        (NOISE,),
    ),
    Fault(
        "cells that say nothing",
        "local logits that are no numbers are left as they are",
        "evidence/network.py",
        "told.nan_to_num(nan=-LARGEST, posinf=LARGEST, neginf=-LARGEST)",
        "told",
        (NO_NUMBERS,),
    ),
    Fault(
        "one cell silences all",
        "one cell whose logits are no numbers takes the word from all others",
        "evidence/network.py",
        "self._shaped_logits(images).float()",
        "(lambda own: own + 0 * own.sum(dim=1, keepdim=True))(self._shaped_logits(images).float())",
        (NO_NUMBERS,),
    ),
    Fault(
        "cells that see more",
        "a defence takes a network whose cells see other pixels than those that its proof is about",
        "defences/local.py",
        "if own is not other and own.describe() != other.describe():",
        "if own.extent != other.extent:",
        ("test_local.py::test_a_defence_is_for_the_cells_that_it_was_made_for",),
    ),
    Fault(
        "half of what sums move",
        "the margin of local evidence is measured as if one of two compared sums stood still",
        "evidence/network.py",
        "return 2 * float(change.amax())",
        "return float(change.amax())",
        ("test_local.py::test_the_margin_bounds_how_far_sums_of_evidence_move",),
    ),
    Fault(
        "a margin that no rule hears of",
        "rules on local evidence are made without the margin",
        "evidence/registry.py",
        "if margin is None or self.rule.guarantee is Guarantee.NONE:",
        "if margin != 0 or self.rule.guarantee is Guarantee.NONE:",
        ("test_local.py::test_a_rule_by_name_keeps_the_margin_that_it_is_given",),
    ),
    Fault(
        "told of a colour",
        "networks that are told what is hidden get the mean colour there, which a photo can have, too",
        "images.py",
        "return (HIDDEN, HIDDEN, HIDDEN) if is_told(model) else mean",
        "return mean",
        ("test_told.py::test_votes_are_those_of_six_channels_made_by_hand",),
    ),
    Fault(
        "hidden tokens are looked at",
        "a transformer that should drop what is hidden attends to it",
        "zoo/smoothed_vit.py",
        "attn_mask=seen",
        "attn_mask=None",
        ("test_smoothed_vit.py::test_it_says_what_a_transformer_without_the_hidden_tokens_says",),
    ),
    Fault(
        "a reach without the last pixel",
        "a patch in the photo is taken to reach one pixel less of the enlarged input than it does",
        "experiments/paper_tables.py",
        'LabelledPatch("5 px in the photo", 55, photo=5)',
        'LabelledPatch("5 px in the photo", 54, photo=5)',
        (REACH,),
    ),
    Fault(
        "a reach beyond what is known",
        "a patch in the photo is taken to be known however much the photo is enlarged",
        "experiments/experiment.py",
        "rest == 0 and 1 <= factor <= PAPER_SIDE // PHOTO[0]",
        "rest == 0 and 1 <= factor",
        ("test_photo_patches.py::test_other_inputs_are_known_only_where_the_declared_side_covers_the_reach",),
    ),
    Fault(
        "a margin from a file for all units",
        "experiments hand on a margin that a file has in its own unit alone, 0 in all others",
        "experiments/campaign.py",
        "known = known if header else margin",
        "known = margin",
        ("test_experiments.py::test_one_margin_is_measured_on_the_engine_that_then_certifies",),
    ),
]
