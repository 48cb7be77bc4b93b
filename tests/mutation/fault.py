"""A fault: one exact edit of the source, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass

ONE_FACT = "test_faults.py::test_no_patch_anywhere_moves_a_vote_of_its_jury"
IN_EVERY_VIEW = "test_views.py::test_what_a_mask_hides_is_hidden_in_every_view"
PAINTED = "test_engine.py::test_votes_equal_a_plain_loop_over_painted_images"
PIXELS = "test_geometry.py::test_a_mask_covers_exactly_what_its_pixels_cover"
CELLS = "test_geometry.py::test_cells_partition_the_locations_and_are_hidden"
PARTITION = "test_geometry.py::test_districts_partition_the_locations_by_jury"
THREE_MASKS = "test_rules_exhaustive.py::test_every_attack_on_up_to_three_masks"
SOFT_OUTPUTS = "test_rules_exhaustive.py::test_every_attack_with_soft_outputs"
NOISE = "test_rules_exhaustive.py::test_a_margin_absorbs_noise"
TWO_LEVELS = "test_levels_exhaustive.py::test_every_attack_on_two_levels"
SHARED_MASK = "test_levels_exhaustive.py::test_every_attack_on_places_that_share_a_mask"
BOTH_SIDES = "test_levels_exhaustive.py::test_a_lead_within_the_margin_of_a_threshold_is_right_on_both_sides"
REFERENCE = "test_levels.py::test_levels_agree_with_the_reference"
ROUNDS = "test_levels_exhaustive.py::test_every_attack_however_little_is_asked_at_once"
COHORT_OF_LEVELS = "test_levels.py::test_levels_of_a_cohort_are_those_of_its_pictures"
UNBEATEN = "test_levels.py::test_whoever_is_unbeaten_is_found"
TOURNAMENTS = "test_rules.py::test_tournaments_of_any_outcome"
BAND_MASKING = "test_band_masking.py::test_every_attack_on_masked_bands"
SMOOTHING = "test_smoothing.py::test_every_attack_on_bands"
STRICT = "test_rules.py::test_minority_reports_is_strict_at_the_threshold"
COHORT = "test_rules.py::test_a_cohort_is_judged_as_its_pictures_are_one_by_one"
EVERY_PAIR = "test_faults.py::test_one_wrong_pair_anywhere_voids_a_certificate"


@dataclass(frozen=True)
class Fault:
    """``old`` stands exactly once in ``file``, below src/certmask; with ``new`` in its place one of ``tests`` fails."""

    name: str
    words: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The text with the fault in it; an error unless its place is there exactly once and the result compiles."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"expected the text of {self.name!r} exactly once in {self.file}, got it {found} times")
        text = text.replace(self.old, self.new)
        compile(text, self.file, "exec")
        return text
