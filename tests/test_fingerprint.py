"""A fingerprint of behaviour: what no hash of weights sees is noticed, what lies within the margin is let through."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import tiny_network
from PIL import Image
from torch import Tensor, nn

import certmask as cm
from certmask.certification import certify_run
from certmask.classifier import Classifier
from certmask.company import probes
from certmask.covers import patchcleanser_cover, spread_cover
from certmask.data import Dataset, load_dataset
from certmask.defences import MaskedDefence
from certmask.engine import Engine
from certmask.engine.fingerprint import fingerprint_from
from certmask.errors import ResultsError
from certmask.function import check_function
from certmask.results.file import read_results
from certmask.rules import JuryRecovery, MeanLogProbability, PatchCleanser, Undefended
from certmask.threat import Patch

COVER = spread_cover(24, Patch(4, 4), 10, 2)


class Plain(nn.Module):
    """A network whose forward pass can be changed without a trace in its weights or its printed layers."""

    def __init__(self, after: Callable[[Tensor], Tensor] = lambda logits: logits) -> None:
        super().__init__()
        self.network, self.after = tiny_network(), after

    def forward(self, batch: Tensor) -> Tensor:
        return self.after(self.network(batch))


class Attribute(nn.Module):
    """Has a tensor that is neither a parameter nor a buffer."""

    def __init__(self, shift: float) -> None:
        super().__init__()
        self.network, self.shift = tiny_network(), shift * torch.eye(5)[0]

    def forward(self, batch: Tensor) -> Tensor:
        return self.network(batch) + self.shift  # type: ignore[no-any-return]


class Negatable(nn.Module):
    """Its code can be changed while it lies in a file."""

    sign = 1

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny_network()

    def forward(self, batch: Tensor) -> Tensor:
        return self.sign * self.network(batch)  # type: ignore[no-any-return]


def engine_of(model: nn.Module, **options: object) -> Engine:
    return Engine(Classifier(model, 24, batch=16, precision="fp32", name="net"), [COVER], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "other"),
    [
        (Plain(), Plain(lambda logits: -logits)),
        (Plain(), Plain(lambda logits: logits.tanh())),
        (Plain(), Plain(lambda logits: logits + 1e-3 * logits.sign())),
        (Attribute(0.0), Attribute(0.01)),
    ],
    ids=["negated", "activation", "a little", "attribute"],
)
def test_what_no_hash_sees(model: nn.Module, other: nn.Module) -> None:
    one, two = engine_of(model), engine_of(other)
    assert (one.classifier.weights, one.classifier.architecture) == (
        two.classifier.weights,
        two.classifier.architecture,
    )
    assert one.fingerprint().name != two.fingerprint().name
    with pytest.raises(ResultsError, match=r"expected the function that run\.jsonl certified, got one whose leads"):
        check_function(header_of(one), two, [JuryRecovery()], "run.jsonl")
    assert engine_of(model).fingerprint().name == one.fingerprint().name


def header_of(engine: Engine) -> dict[str, dict[str, object]]:
    header: dict[str, dict[str, object]] = json.loads(json.dumps({"model": engine.describe()}))
    return header


def test_a_switch_of_a_library_is_noticed_or_changes_nothing(network: nn.Module) -> None:
    """Without mkldnn a convolution may be summed otherwise: a fingerprint differs exactly where votes do."""
    classifier = Classifier(network, 24, batch=16, precision="fp32")
    with_it = Engine(classifier, [COVER]).fingerprint()
    torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]
    try:
        without, votes = Engine(classifier, [COVER]).fingerprint(), classifier(probes((24, 24))[:1])
    finally:
        torch.backends.mkldnn.set_flags(True)  # type: ignore[no-untyped-call]
    same = torch.equal(votes, classifier(probes((24, 24))[:1]))
    assert same or with_it.name != without.name


def test_it_holds_bare_and_masked_pictures_and_no_cover(network: nn.Module) -> None:
    """The same for every cover, another for another colour of the masks."""
    classifier = Classifier(network, 24, batch=3, precision="fp32")
    one = Engine(classifier, [COVER])
    other = Engine(classifier, [patchcleanser_cover(24, Patch(4, 4), 3)])
    dark = Engine(classifier, [COVER], fill=(0.2, 0.2, 0.2))
    assert one.fingerprint().name == other.fingerprint().name
    pictures = probes((24, 24))[:2].repeat_interleave(2, dim=0)
    pictures[1::2, :, 6:18, 6:18] = 0.0
    assert torch.allclose(one.fingerprint().votes, classifier(pictures), atol=1e-6)
    bare = one.fingerprint().votes - dark.fingerprint().votes
    assert not bare[::2].any()
    assert bare[1::2].any()


def test_it_survives_json_and_no_tampering(network: nn.Module) -> None:
    said = json.loads(json.dumps(engine_of(network).fingerprint().describe()))
    assert fingerprint_from(said).describe() == said
    for wrong in ({**said, "name": "0" * 16}, {**said, "votes": said["votes"][:-8]}, {**said, "classes": 7}, {}, None):
        with pytest.raises(ResultsError, match=r"expected .*fingerprint.* got"):
            fingerprint_from(wrong)


def test_what_lies_within_the_margin_is_let_through() -> None:
    """Measured in what each rule reads: probabilities, or their logarithms."""
    one, other = engine_of(Attribute(0.0)), engine_of(Attribute(0.01))
    changes = other.fingerprint().changes(one.fingerprint())
    assert 0 < changes.probability < changes.logarithm
    header = header_of(one)
    between = (changes.probability + changes.logarithm) / 2
    check_function(header, other, [PatchCleanser(margin=changes.probability)], "it")
    check_function(header, other, [JuryRecovery(aggregate=MeanLogProbability(), margin=changes.logarithm)], "it")
    for rule in (
        PatchCleanser(margin=changes.probability * 0.99),
        JuryRecovery(aggregate=MeanLogProbability(), margin=between),
    ):
        with pytest.raises(ResultsError, match=r"more than the .* allows"):
            check_function(header, other, [rule], "it")


def test_every_certificate_carries_it(network: nn.Module, images: Tensor) -> None:
    shield = cm.Defence(network, COVER, JuryRecovery(), batch=16, precision="fp32")
    for certificate in shield.certify(images[:2], [0, 1]).certificates:
        assert certificate.function is not None
        assert certificate.function["fingerprint"] == shield.engine.fingerprint().describe()
        assert json.loads(json.dumps(certificate.describe()))["function"]["fingerprint"]["name"]


@pytest.fixture
def photos(images: Tensor, tmp_path: Path) -> Dataset:
    (tmp_path / "photos" / "0").mkdir(parents=True)
    for number, image in enumerate(images[:5]):
        Image.fromarray((image * 255).byte().permute(1, 2, 0).numpy()).save(tmp_path / "photos" / "0" / f"{number}.png")
    return load_dataset(str(tmp_path / "photos"), None, 1.0)


def certified(model: nn.Module, photos: Dataset, out: Path, margin: float = 0.0) -> None:
    certify_run(engine_of(model), photos, [MaskedDefence(COVER, PatchCleanser(margin=margin), "pc")], out)


def cut(path: Path, rows: int) -> None:
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[: 1 + rows]))


def test_a_run_is_not_continued_with_another_function(photos: Dataset, tmp_path: Path) -> None:
    """Negated logits, with the same weights and the same printed layers."""
    out = tmp_path / "run.jsonl"
    certified(Plain(), photos, out)
    whole = out.read_text()
    cut(out, 2)
    begun = out.read_text()
    with pytest.raises(ResultsError, match="got one whose leads on fixed pictures differ"):
        certified(Plain(lambda logits: -logits), photos, out)
    assert out.read_text() == begun
    certified(Plain(), photos, out)
    assert [json.loads(line).get("image") for line in out.read_text().splitlines()] == [
        json.loads(line).get("image") for line in whole.splitlines()
    ]


def test_what_a_hash_sees_is_told_by_its_name(photos: Dataset, tmp_path: Path) -> None:
    """Other weights are not told as something that no hash sees."""
    out, other = tmp_path / "run.jsonl", Plain()
    certified(Plain(), photos, out)
    cut(out, 2)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    with pytest.raises(ResultsError, match=r"got another model\.weights_sha256"):
        certified(other, photos, out)


def test_a_run_without_any_promise_is_not_continued_either(photos: Dataset, tmp_path: Path) -> None:
    """Its clean accuracy would be that of two functions."""
    out, defences = tmp_path / "run.jsonl", [MaskedDefence(COVER, Undefended(), "undefended")]
    certify_run(engine_of(Plain()), photos, defences, out)
    cut(out, 2)
    with pytest.raises(ResultsError, match="got one whose leads on fixed pictures differ"):
        certify_run(engine_of(Plain(lambda logits: -logits)), photos, defences, out)


def test_a_copy_must_behave_as_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of a network is not in a pickle; where it is another one, the copy is refused."""
    kept = pickle.dumps(cm.Defence(Negatable(), COVER, batch=16, precision="fp32"))
    pickle.loads(kept)
    monkeypatch.setattr(Negatable, "sign", -1)
    with pytest.raises(ResultsError, match="expected the function that the original certified"):
        pickle.loads(kept)


def test_a_run_goes_on_where_rounding_is_within_its_margin(photos: Dataset, tmp_path: Path) -> None:
    """The header keeps the fingerprint with which the file began."""
    out = tmp_path / "run.jsonl"
    certified(Attribute(0.0), photos, out, margin=0.1)
    cut(out, 2)
    certified(Attribute(0.01), photos, out, margin=0.1)
    header, rows = read_results(out)
    assert len(rows) == 5
    assert header["model"]["fingerprint"] == engine_of(Attribute(0.0)).fingerprint().describe()


def test_another_source_of_certmask_is_told(photos: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run.jsonl"
    certified(Plain(), photos, out)
    cut(out, 2)
    monkeypatch.setattr("certmask.results.file.source_digest", lambda: "f" * 16)
    with pytest.warns(UserWarning, match=r"begun with certmask source [0-9a-f]{16}, here f{16}"):
        certified(Plain(), photos, out)
    assert len(read_results(out)[1]) == 5


def test_an_older_header_without_it_is_told(network: nn.Module) -> None:
    header = header_of(engine_of(network))
    del header["model"]["fingerprint"]
    notes = check_function(header, engine_of(network), [JuryRecovery()], "old.jsonl")
    assert notes[0] == "old.jsonl has no fingerprint of behaviour: only weights and settings were compared"
