"""Faults of what is written down, and of the gauntlet that tries it."""

from __future__ import annotations

from mutation.fault import THREE_MASKS, Fault

RECORDS = [
    Fault(
        "published test called recovery",
        "the published rule's test is reported as certified recovery",
        "rules/published.py",
        "guarantee = Guarantee.PUBLISHED",
        "guarantee = Guarantee.RECOVERY",
        ("test_rules.py::test_sentences_say_which_guarantee",),
    ),
    Fault(
        "detection called recovery",
        "images that are only sure to raise an alert are reported as recovered",
        "rules/jury_detection.py",
        "guarantee = Guarantee.DETECTION",
        "guarantee = Guarantee.RECOVERY",
        ("test_defence.py::test_detection_fills_only_its_own_column", THREE_MASKS),
    ),
    Fault(
        "row of another photo",
        "a run is continued although a photo that is done was exchanged",
        "certification.py",
        "if pixel_digest(image) != finished[sample.name]:",
        "if sample.name not in finished:",
        ("test_cli.py::test_a_photo_that_was_exchanged_is_noticed",),
    ),
    Fault(
        "run of another function",
        "a run is continued with other weights, another margin or other masks",
        "results/file.py",
        'return "" if old == new else',
        'return "" if type(old) is type(new) else',
        ("test_results.py::test_other_inputs_are_refused_with_the_field_that_differs",),
    ),
    Fault(
        "attacks on another photo",
        "the gauntlet attacks a photo that is not the one that was certified",
        "attacks/certified_run.py",
        'if pixel_digest(photo) != rows[name]["input_sha256"]:',
        "if name not in rows:",
        ("test_faults.py::test_only_the_certified_pixels_are_attacked",),
    ),
    Fault(
        "a gauntlet that looks away",
        "a wrong answer without an alert does not count as a broken certificate of recovery",
        "certificate.py",
        "return decision.label != label or decision.alert",
        "return decision.label != label and decision.alert",
        ("test_attacks.py::test_what_breaks_a_guarantee",),
    ),
    Fault(
        "an attack beyond its patch",
        "the gauntlet accepts pictures that were changed outside the patch",
        "attacks/attack.py",
        "if not torch.equal(paste(pictures, beneath(clean, job.patch, corners), corners), clean):",
        "if pictures.shape != clean.shape:",
        ("test_attacks.py::test_a_cheating_attack_is_caught",),
    ),
    Fault(
        "a replay of more than was certified",
        "a saved picture with a larger patch than its photo is certified for, or with more of them, is replayed",
        "attacks/target.py",
        "check_allowed(patch, defence.threat, defence.image, _certified_side(run, row))",
        "check_allowed(patch, patch, defence.image)",
        ("test_attack_threats.py::test_a_saved_attempt_that_says_more_than_was_allowed_is_refused",),
    ),
    Fault(
        "a size that is not attacked",
        "photos that are certified up to some size, and not for the largest, are never attacked",
        "attacks/certified_run.py",
        'return bool(outcome["certified"] or outcome.get("side"))',
        'return bool(outcome["certified"])',
        ("test_attack_threats.py::test_attempts_are_of_every_kind",),
    ),
    Fault(
        "a game for one patch",
        "in the game of votes, a vote that hides one of two patches is out of the attacker's reach",
        "attacks/vote_game.py",
        "for jury in juries]).all(axis=0))",
        "for jury in juries]).any(axis=0))",
        ("test_attack_threats.py::test_two_patches_in_votes_beat_a_rule_for_one_and_no_rule_for_two",),
    ),
    Fault(
        "grids of another cover",
        "a cover's digest leaves out its grids, and a results file is taken for one with other pairs",
        "covers/cover.py",
        "_digest([*self._told, self.grids, *([levels] if levels else [])])",
        "_digest([*self._told, *([levels] if levels else [])])",
        ("test_covers.py::test_digest_tells_covers_apart",),
    ),
    Fault(
        "another network in the file",
        "a saved defence whose weights were changed is loaded as the one that was certified",
        "deployed/saved.py",
        "    if not whole:",
        "    if not tensors:",
        ("test_python_use.py::test_a_file_of_another_function_is_refused",),
    ),
]
