"""The page as people use it, in a real Chromium: `make browser`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from commands import certmask
from PIL import Image
from playwright.sync_api import Browser, expect
from visitors import (
    MODEL,
    PHOTOS,
    SECONDS,
    SIDE,
    Served,
    Visitor,
    certmask_app,
    chromium,
    class_folders,
    keep,
    visiting,
)

from certmask.report.gallery import fate
from certmask.results.run import read_run

WIDTHS = (1280, 390)
expect.set_options(timeout=SECONDS)
ENTITIES = "".join(f'<!ENTITY {b} "{10 * f"&{a};"}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
BOMB = f'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "aaaaaaaaaa">{ENTITIES}]><svg><text>&i;</text></svg>'


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, and a run that really certified them."""
    folder = tmp_path_factory.mktemp("house")
    photos = class_folders(folder / "photos")
    rules = [part for rule in ("undefended", "zoom", "zoom-detection") for part in ("--rule", rule)]
    out = folder / "runs" / "cats.jsonl"
    certmask("certify", photos, "--model", MODEL, "--patch", str(SIDE), *rules, "--precision", "fp32", "--out", out)
    return folder


@pytest.fixture(scope="session")
def served(house: Path) -> Iterator[Served]:
    with certmask_app(house, "--runs", "runs", "--photos", "photos") as found:
        yield found


@pytest.fixture(scope="session")
def address(served: Served) -> str:
    return served.address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def visitor(browser: Browser, address: str) -> Iterator[Visitor]:
    with visiting(browser, address) as found:
        yield found


@pytest.fixture(scope="session")
def predicted() -> dict[str, Any]:
    """What the command line says about the example photo."""
    told = ("--model", MODEL, "--patch", str(SIDE), "--precision", "fp32", "--json")
    (found,) = json.loads(certmask("predict", PHOTOS / "cat.jpg", *told).stdout)
    assert isinstance(found, dict)
    return found


def test_the_example_photo_is_answered_before_anybody_asks(visitor: Visitor, predicted: dict[str, Any]) -> None:
    assert (predicted["name"], predicted["certified"]) == ("cat", True)
    assert visitor.text("#result .cm-label") == "cat"
    assert visitor.text("#result .cm-guarantee").lower() == f"{predicted['meaning']}.".lower()
    assert f"{predicted['passes']} passes to answer" in visitor.text("#result .cm-verdict")
    assert predicted["why"].lower() in visitor.text("#result").lower()
    assert "4 to 8,103 passes" in visitor.text("#price")


def test_the_first_result_is_there_soon(served: Served, visitor: Visitor) -> None:
    """Within 15 seconds on two processors that have nothing else to do: 30 of one processor, whatever else they do."""
    assert visitor.text("#result .cm-label") == "cat"
    assert served.worked < 30


def test_the_certificate_is_a_file(visitor: Visitor) -> None:
    with visitor.page.expect_download() as waiting:
        visitor.page.get_by_text("The certificate as a file").click()
    told = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    assert waiting.value.suggested_filename == "certificate.json"
    assert told["certificate"]["holds"] is True
    assert told["certificate"]["threat"] == {"kind": "patch", "height": SIDE, "width": SIDE}
    assert told["certificate"]["function"]["weights_sha256"]
    assert told["answer"] == "cat"


def test_passes_are_told_before_and_votes_after(visitor: Visitor) -> None:
    visitor.choose("#rule", "patchcleanser (recovery)")
    visitor.says("#price", "36 to 667 passes")
    visitor.says("#result", "not looked at yet")
    visitor.answer("#look", "#result", ".cm-vote")
    assert visitor.page.locator("#result .cm-vote").count() == 36
    assert "patchcleanser" in visitor.text("#result .cm-verdict")
    visitor.check("#count", "2")
    visitor.says("#price", "expected")
    visitor.says("#result", "not looked at yet")
    assert "expected" in visitor.answer("#look", "#result", ".cm-refused").inner_text()


def test_dissenting_votes_are_framed(visitor: Visitor, house: Path) -> None:
    visitor.give("#photo", house / "photos" / "cat" / "turned.png")
    visitor.says("#result", "not looked at yet")
    visitor.choose("#rule", "zoom-detection (detection)")
    visitor.says("#price", "passes")
    result = visitor.answer("#look", "#result", ".cm-vote")
    assert "alert" in result.inner_text()
    framed = result.locator(".cm-dissent")
    named = [image.get_attribute("alt") or "" for image in result.locator(".cm-vote img").all()]
    assert framed.count() == sum("dissents" in alt for alt in named) > 0
    assert all("cat" not in text.split() for text in framed.all_inner_texts())


@pytest.mark.parametrize("width", WIDTHS)
def test_a_patch_fools_the_model_and_neither_detection_nor_recovery(browser: Browser, address: str, width: int) -> None:
    with visiting(browser, address, width) as visitor:
        visitor.tab("Attack it")
        result = visitor.answer("#attack", "#attacked", ".cm-card")
        said = {card.get_attribute("aria-label"): card.inner_text() for card in result.locator(".cm-card").all()}
        assert list(said) == ["undefended model", "published rule", "detection", "recovery"]
        assert "changed by the patch" in said["undefended model"]
        assert visitor.text("[aria-label='undefended model'] strong") != "cat"
        assert "Without the patch: cat." in said["undefended model"]
        assert "ALERT" in said["detection"]
        assert visitor.text("[aria-label=recovery] strong") == "cat"
        assert "not changed" in said["recovery"]
        assert "Certified recovery" in said["recovery"]
        assert not any("ertified" in said[role] for role in ("undefended model", "published rule"))
        check_layout(visitor)
        keep(visitor, f"attack-{width}")


def test_a_click_places_the_patch(visitor: Visitor) -> None:
    visitor.tab("Attack it")
    box = visitor.page.locator("#place img").bounding_box()
    assert box
    at = {"x": box["width"] * 20.5 / 32, "y": box["height"] * 10.5 / 32}
    before = visitor.shown("#place")
    visitor.page.locator("#place img").click(position=at)  # type: ignore[arg-type]
    visitor.changed("#place", before)
    visitor.says("#place", "the patch goes into the frame")
    expect(visitor.page.locator("#top input[type=number]")).to_have_value("5")
    expect(visitor.page.locator("#left input[type=number]")).to_have_value("15")
    expect(visitor.page.locator("#free input")).not_to_be_checked()
    visitor.check("#kind", "noise")
    result = visitor.answer("#attack", "#attacked", ".cm-card")
    assert "11×11 patch at row 5, column 15" in result.inner_text()
    assert "not changed" in result.locator("[aria-label=recovery]").inner_text()


def test_a_sticker_is_put_down(visitor: Visitor, tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), (255, 0, 255)).save(tmp_path / "sticker.png")
    visitor.tab("Attack it")
    visitor.check("#kind", "my sticker")
    assert "choose a file first" in visitor.answer("#attack", "#attacked", ".cm-refused").inner_text()
    visitor.give("#sticker", tmp_path / "sticker.png")
    visitor.says("#sticker", "sticker.png")
    visitor.answer("#attack", "#attacked", ".cm-card")
    address = visitor.page.locator("#attacked img").nth(1).get_attribute("src") or ""
    with urlopen(address) as file, Image.open(file) as picture:
        count = picture.width * picture.height
        pixels = {colour: found for found, colour in picture.convert("RGB").getcolors(count) or ()}
    assert pixels[255, 0, 255] > 0.8 * (SIDE / 32) ** 2 * count


@pytest.mark.parametrize("width", WIDTHS)
def test_a_run_is_explored(browser: Browser, address: str, house: Path, width: int) -> None:
    run = read_run(house / "runs" / "cats.jsonl")
    fates = Counter(fate(row["defences"]["zoom-detection"], row["label"]) for row in run.rows)
    assert min(fates[kind] for kind in ("certified", "alert raised", "wrong, no alert")) > 0
    with visiting(browser, address, width) as visitor:
        visitor.tab("Explore a run")
        visitor.choose("#run", "cats.jsonl")
        visitor.says("#rows caption", f"{len(run.rows)} of {len(run.rows)} photos under zoom-detection")
        assert "certified detection" in visitor.text("#run-table")
        for kind in ("certified", "alert raised", "wrong, no alert"):
            visitor.check("#fate", kind)
            own = [row for row in run.rows if fate(row["defences"]["zoom-detection"], row["label"]) == kind]
            visitor.says("#rows caption", f"{fates[kind]} of {len(run.rows)} photos")
            visitor.says("#rows tbody", str(own[0]["image"]))
            shown = {line.split()[0] for line in visitor.page.locator("#rows tbody tr").all_inner_texts()}
            assert shown == {str(row["image"]) for row in own}
        visitor.check("#fate", "certified")
        visitor.says("#rows tbody", "cat/whole.png")
        result = visitor.answer("#votes", "#photo-votes", ".cm-vote")
        assert "The model answers here as it did in that run" in result.inner_text()
        assert "detection certified" in result.inner_text()
        check_layout(visitor)
        keep(visitor, f"explore-{width}")


def test_what_is_no_photo_or_too_large_a_one_is_refused(visitor: Visitor, tmp_path: Path) -> None:
    Image.new("L", (8000, 6250)).save(tmp_path / "large.png")
    (tmp_path / "words.jpg").write_text("This is no photo.")
    (tmp_path / "bomb.svg").write_text(BOMB)
    reasons = {
        "large.png": "expected a photo of at most 24,000,000 pixels, got 8000×6250",
        "words.jpg": "expected a readable image in the upload, got no image",
        "bomb.svg": "expected a readable image in the upload, got no image",
    }
    for (name, reason), other in zip(reasons.items(), ("rocket", "cat", "cup"), strict=True):
        visitor.give("#photo", tmp_path / name)
        visitor.says("#refusal", reason)
        assert visitor.page.locator("#refusal [role=alert]").is_visible()
        visitor.check("#examples", other)
        visitor.page.wait_for_selector("#refusal [role=alert]", state="detached", timeout=SECONDS)
    visitor.says("#result", "not looked at yet")
    visitor.answer("#look", "#result", ".cm-label")
    assert visitor.text("#result .cm-label")


def test_an_upload_of_too_many_bytes_is_refused(visitor: Visitor, tmp_path: Path) -> None:
    (tmp_path / "heavy.png").write_bytes(bytes(17 * 2**20))
    visitor.give("#photo", tmp_path / "heavy.png")
    visitor.says("body", "exceed the maximum allowed size of 16.0 Mb")
    visitor.complaints.clear()  # the browser itself notes the status of the answer


def test_two_visitors_do_not_mix(browser: Browser, address: str) -> None:
    with visiting(browser, address) as first, visiting(browser, address) as second:
        second.check("#examples", "rocket")
        second.says("#result", "not looked at yet")
        first.choose("#rule", "patchcleanser (recovery)")
        first.says("#price", "36 to 667")
        for one in (first, second):
            one.page.locator("#look").click()
        first.says("#result .cm-verdict", "patchcleanser")
        second.says("#result .cm-verdict", "zoom")
        assert first.text("#result .cm-label") == "cat"
        assert second.text("#result .cm-label") != "cat"
        assert "rocket" in (second.page.locator("#result img").first.get_attribute("alt") or "")


def test_whoever_asks_twice_at_once_keeps_nobody_out(browser: Browser, address: str) -> None:
    """The second question of a visitor is refused in words; the first is answered, and so is that of somebody else."""
    with visiting(browser, address) as greedy, visiting(browser, address) as modest:
        greedy.choose("#rule", "patchcleanser (recovery)")
        greedy.says("#price", "36 to 667")
        greedy.tab("Attack it")
        with greedy.page.expect_response("**/queue/join*", timeout=SECONDS):  # of two at once either may come first
            greedy.page.evaluate("document.getElementById('look').click()")
        greedy.page.evaluate("document.getElementById('attack').click()")
        greedy.says("body", "expected one question at a time, got another one")
        greedy.complaints.clear()  # the browser itself notes the status of the answer
        modest.answer("#look", "#result", ".cm-label")
        greedy.tab("Look")
        greedy.says("#result .cm-verdict", "patchcleanser")
        assert greedy.text("#result .cm-label") == "cat"
        greedy.tab("Attack it")
        greedy.check("#kind", "noise")
        greedy.answer("#attack", "#attacked", ".cm-card")


def test_a_page_with_the_smallest_limits_starts_and_says_what_it_refuses(browser: Browser, tmp_path: Path) -> None:
    limits = ("--most-passes", "1", "--most-pixels", "1", "--queue", "1")
    with certmask_app(tmp_path, *limits) as served, visiting(browser, served.address) as visitor:
        assert visitor.text("#result .cm-label") == "cat"
        assert "4 to 8,103 passes: more than the 1 that is allowed here" in visitor.text("#price")
        assert "at most 1 pass, got one more" in visitor.answer("#look", "#result", ".cm-refused").inner_text()
        visitor.check("#examples", "cup")
        visitor.says("#result", "not looked at yet")
        visitor.give("#photo", PHOTOS / "rocket.jpg")
        visitor.says("#refusal", "expected a photo of at most 1 pixels, got 432×288. The photo before it is kept.")
        visitor.choose("#rule", "undefended (none)")
        visitor.says("#price", "1 to ")
        check_layout(visitor)


def test_photos_of_a_run_are_found_by_name(visitor: Visitor) -> None:
    visitor.tab("Explore a run")
    visitor.choose("#run", "cats.jsonl")
    visitor.says("#rows caption", "4 of 4 photos")
    visitor.page.get_by_label("Photos whose names have").fill("EAR")
    visitor.says("#rows caption", "1 of 4 photos")
    assert visitor.text("#rows tbody").split()[0] == "cat/ear.png"
    expect(visitor.page.locator("#image input")).to_have_value("cat/ear.png")
    visitor.page.get_by_label("Photos whose names have").fill("no such name")
    visitor.says("#rows caption", "0 of 4 photos")


def test_everything_is_reached_by_keyboard(visitor: Visitor) -> None:
    visitor.page.locator("body").press("Tab")
    reached = []
    for _ in range(40):
        reached.append(visitor.page.evaluate("document.activeElement.closest('[id]:not([id^=component])')?.id || ''"))
        if reached[-1] == "look":
            break
        visitor.page.keyboard.press("Tab")
    wanted = {"examples", "model", "rule", "side", "count", "look"}
    assert wanted <= {part for name in reached for part in wanted if part == name or name.startswith(f"{part}-")} | set(
        reached
    ), reached
    before = visitor.shown("#result")
    visitor.page.keyboard.press("Enter")
    visitor.changed("#result", before)
    visitor.page.wait_for_selector("#result .cm-label", timeout=SECONDS)


def test_the_patch_is_placed_by_keyboard(visitor: Visitor) -> None:
    visitor.tab("Attack it")
    before = visitor.shown("#place")
    visitor.page.locator("#free input").focus()
    visitor.page.keyboard.press("Space")
    visitor.changed("#place", before)
    before = visitor.shown("#place")
    visitor.page.locator("#top input[type=range]").focus()
    visitor.page.keyboard.press("ArrowRight")
    visitor.changed("#place", before)
    expect(visitor.page.locator("#top input[type=number]")).to_have_value("1")


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overlaps(browser: Browser, address: str, width: int) -> None:
    with visiting(browser, address, width) as visitor:
        check_layout(visitor)
        keep(visitor, f"look-{width}")


def test_files_outside_are_not_given_out(address: str, house: Path) -> None:
    for path in ("/etc/passwd", str(house / "runs" / "cats.jsonl"), str(house / "said.txt")):
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{address}/gradio_api/file={path}")
        assert refused.value.code == 404


def check_layout(visitor: Visitor) -> None:
    """Nothing reaches beyond the window, no two parts lie on one another, every picture has words.

    Gradio keeps a copy of the tabs to measure, which nobody sees, and sets a label into the corner of the field on
    which files are dropped.
    """
    page = visitor.page
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    overlaps = page.evaluate(
        """() => {
          const parts = [...document.querySelectorAll('.cm figure, .cm-card, .cm section > p, .cm h3, button, label')]
            .filter((part) => part.checkVisibility({visibilityProperty: true, opacityProperty: true}))
            .filter((part) => !part.closest('.visually-hidden, [aria-hidden=true], #photo label, #sticker label'));
          const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1
            || b.bottom <= a.top + 1;
          const box = (part) => part.getBoundingClientRect(), found = [];
          for (const a of parts) for (const b of parts)
            if (a !== b && !a.contains(b) && !b.contains(a) && !apart(box(a), box(b)))
              found.push([a.innerText.slice(0, 40), b.innerText.slice(0, 40)]);
          return found;
        }"""
    )
    assert overlaps == [], overlaps
    shown = [image for image in page.locator("img").all() if image.is_visible()]
    assert shown
    assert all(image.get_attribute("alt") for image in shown)
