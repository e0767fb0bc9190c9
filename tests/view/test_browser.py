"""The viewer in a real browser: keys, deep links, live update, hostile text, accessibility, and how it looks.

Screenshots of every page go to the folder that HARNESS_SHOTS names, else to the test's own folder.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest

from harness import runlog
from tests.view import making

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
Browser, Page, expect, sync_playwright = (
    playwright.Browser, playwright.Page, playwright.expect, playwright.sync_playwright,
)  # fmt: skip

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT = 120_000
WIDTHS = (1280, 360)
THEMES = ("light", "dark")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=WAIT)
        expect.set_options(timeout=WAIT)
        yield opened
        opened.close()


class Watched:
    """A page that remembers whatever it did that it must not do."""

    def __init__(self, browser: Browser, home: str, width: int = 1280, theme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
        self.context.set_default_timeout(WAIT)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda asked: None if asked.url.startswith(home) else self.wrong.append(asked.url))


@pytest.fixture
def watched(browser: Browser, address: str) -> Iterator[Watched]:
    one = Watched(browser, address)
    yield one
    one.context.close()


def first_of(runs: Path, name: str) -> dict[str, str]:
    one = next(iter(runlog.read(runs / name).attempts()))
    return {"entry": one.entry, "task": one.task_id, "epoch": str(one.epoch)}


def every_page(runs: Path) -> dict[str, str]:
    """Return name -> address of one page of each kind, those of the hostile runs too."""
    hostile = next(path.name for path in runs.iterdir() if path.name.startswith("hostile"))
    key = first_of(runs, "good")
    return {
        "runs": "/",
        "run": "/run?run=good",
        "hostile": f"/run?{urlencode({'run': hostile})}",
        "attempt": f"/attempt?{urlencode({'run': 'good', **key})}",
        "tokens": f"/attempt?{urlencode({'run': hostile, **first_of(runs, hostile)})}",
        "compare": "/compare?a=bad&b=good",
        "pair": f"/pair?{urlencode({'a': 'bad', 'b': 'good', **key})}",
        "train": "/train?run=learning",
        "evil": "/train?run=evil",
        "missing": "/run?run=nothing",
    }


@pytest.fixture(scope="session")
def shots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that screenshots go to."""
    named = os.environ.get("HARNESS_SHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("shots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_is_accessible(
    browser: Browser, address: str, runs: Path, shots: Path, width: int, theme: str
) -> None:
    one = Watched(browser, address, width, theme)
    try:
        for name, path in every_page(runs).items():
            one.page.goto(address + path)
            one.page.screenshot(path=shots / f"{name}-{width}-{theme}.png", full_page=name != "hostile")
            one.page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
            wide = one.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name} is wider than the window"
            if width == WIDTHS[0]:  # what a narrow window changes is whether it fits
                rules = {} if theme == "light" else {"runOnly": ["color-contrast"]}
                found = axe.Axe().run(one.page, options=rules)
                assert found.violations_count == 0, f"{name}: {found.generate_report()}"
        assert [text for text in one.wrong if "404" not in text] == []
    finally:
        one.context.close()


def test_hostile_text_is_only_text(watched: Watched, address: str, runs: Path) -> None:
    page = watched.page
    hostile = next(path.name for path in runs.iterdir() if path.name.startswith("hostile"))
    attempts = runlog.read(runs / hostile).attempts()
    keys = [{"entry": one.entry, "task": one.task_id, "epoch": "0"} for one in attempts]
    paths = ["/", f"/run?{urlencode({'run': hostile})}", "/train?run=evil"]
    paths += [f"/compare?{urlencode({'a': hostile, 'b': hostile})}"]
    paths += [f"/attempt?{urlencode({'run': hostile, **key})}" for key in keys]
    paths += [f"/pair?{urlencode({'a': hostile, 'b': hostile, **keys[0]})}"]
    for path in paths:
        page.goto(address + path)
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        page.mouse.move(300, 300)
        assert page.evaluate("window.pwned") is None, path
        foreign = "img, iframe, object, embed, base, style, meta[http-equiv], script:not([src^='/static/']), [style]"
        assert page.locator(foreign).count() == 0, path
        assert page.locator("a[href^='javascript']").count() == 0, path
        assert page.locator("[onmouseover], [onfocus], [onload], [onerror]").count() == 0, path
        assert page.url == address + path
    for text, key in zip(making.HOSTILE, keys, strict=True):
        if text.isprintable():
            page.goto(f"{address}/attempt?{urlencode({'run': hostile, **key})}")
            assert page.locator(".message.assistant > .text").first.inner_text() == text
    assert watched.wrong == []


def press(page: Page, key: str) -> None:
    """Press a key once the page listens: its script begins with the rest of the page there, not with its heading."""
    page.wait_for_function("document.readyState === 'complete'")
    page.keyboard.press(key)


def test_keys_walk_a_list_open_an_attempt_and_come_back(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/run?run=good&entry=kg")
    for _ in range(3):
        press(page, "j")
    press(page, "k")
    expect(page.locator("tr.chosen")).to_have_count(1)
    second = page.locator("table[data-keys] tbody tr").nth(1)
    expect(second).to_have_class("chosen")
    task = second.locator("th a").inner_text()
    press(page, "Enter")
    expect(page.locator("h1")).to_have_text(task)
    press(page, "j")
    expect(page.locator(".message.chosen h3")).to_have_text("Agent, turn 1")
    press(page, "n")
    expect(page.locator("h1")).not_to_have_text(task)
    press(page, "p")
    expect(page.locator("h1")).to_have_text(task)
    press(page, "Escape")
    page.wait_for_url("**/run?run=good&entry=kg")
    press(page, "?")
    expect(page.locator("dialog")).to_be_visible()
    press(page, "Escape")
    expect(page.locator("dialog")).to_be_hidden()
    press(page, "/")
    page.keyboard.type("j")
    expect(page.locator("input[type=search]")).to_have_value("j")
    expect(page.locator("tr.chosen")).to_have_count(0)
    assert watched.wrong == []


def test_a_link_leads_to_a_turn_and_filters_live_in_the_address(watched: Watched, address: str, runs: Path) -> None:
    page = watched.page
    page.goto(f"{address}/attempt?{urlencode({'run': 'good', **first_of(runs, 'good')})}#turn-2")
    expect(page.locator("#turn-2")).to_be_in_viewport()
    page.goto(f"{address}/run?run=good")
    page.get_by_label("Environment").select_option("kg")
    page.wait_for_url("**entry=kg**")
    expect(page.get_by_role("status")).to_contain_text("4 attempts")
    page.get_by_role("searchbox").fill("no such task")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("status")).to_contain_text("0 attempts")
    page.go_back()
    expect(page.get_by_role("status")).to_contain_text("4 attempts")
    assert watched.wrong == []


def test_a_table_sorts_and_the_theme_stays(watched: Watched, address: str) -> None:
    page = watched.page
    page.goto(f"{address}/run?run=bad")
    heading = page.locator("table[data-sort] th", has_text="Environment").first
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    heading.get_by_role("button").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto(f"{address}/")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert watched.wrong == []


def test_a_page_is_whole_without_script(browser: Browser, address: str, runs: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(WAIT)
    try:
        page = context.new_page()
        page.goto(f"{address}/run?run=good&q=kg")
        expect(page.get_by_role("heading", name="Attempts")).to_be_visible()
        page.goto(f"{address}/attempt?{urlencode({'run': 'good', **first_of(runs, 'good')})}")
        expect(page.get_by_text("Agent, turn 1")).to_be_visible()
    finally:
        context.close()


def test_a_run_is_watched_while_it_is_written(browser: Browser, tmp_path: Path) -> None:
    every = [making.trajectory("plain", number=at, value=1.0) for at in range(40)]
    folder = making.write_run(tmp_path / "runs" / "live", every)
    log = folder / runlog.LINES
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0])
    training = making.write_training(tmp_path / "runs" / "learning", [making.update(1)])
    header = runlog.read(folder).header
    with making.serving(tmp_path / "cache", str(tmp_path / "runs")) as where, runlog.RunLog(folder, header):
        one = Watched(browser, where.rstrip("/"))
        try:
            one.page.goto(f"{where}run?run=live")
            state = one.page.locator("[data-part=state]")
            expect(state).to_contain_text("playing")
            expect(state).to_contain_text("1 of 40 attempts")
            one.page.keyboard.press("j")
            one.page.locator("details summary").first.focus() if one.page.locator("details").count() else None
            with log.open("ab") as file:
                for line in lines[1:30]:
                    file.write(line)
            expect(state).to_contain_text("30 of 40 attempts")
            expect(one.page.locator("table[data-keys] tbody tr")).to_have_count(30)
            expect(one.page.locator("tr.chosen")).to_have_count(1)
            with log.open("ab") as file:
                file.write(b"".join(lines[30:]))
            expect(state).to_contain_text("complete")
            expect(one.page.locator("body")).not_to_have_attribute("data-live", "2.0")
            one.page.goto(f"{where}train?run=learning")
            with (training / "metrics.jsonl").open("ab") as file:
                file.write(msgspec.json.encode(making.update(2)) + b"\n")
            expect(one.page.locator("[data-part=facts]")).to_contain_text("Updates 2")
            assert one.wrong == []
        finally:
            one.context.close()


def test_a_hundred_thousand_attempts_open_at_once(browser: Browser, tmp_path: Path) -> None:
    count = 100_000
    attempt = msgspec.structs.replace(making.trajectory("mine"), turns=making.trajectory("mine").turns * 3)
    folder = making.write_run(tmp_path / "runs" / "big", [attempt])
    line = msgspec.json.encode(attempt)
    before, after = line.split(b'"mine 0"', 1)
    with (folder / runlog.LINES).open("wb") as file:
        file.writelines(b'%s"mine %06d"%s\n' % (before, at, after) for at in range(count))
    header = msgspec.json.decode((folder / runlog.HEADER).read_bytes())
    header["tasks"] = {"mine": {f"mine {at:06d}": "mine" for at in range(count)}}
    (folder / runlog.HEADER).write_bytes(msgspec.json.encode(header))
    for visit in ("never read before", "read before"):
        with making.serving(tmp_path / "cache", str(tmp_path / "runs")) as where:
            one = Watched(browser, where.rstrip("/"))
            try:
                one.page.goto(where)  # the browser and the server have begun
                begun = time.perf_counter()
                one.page.goto(f"{where}run?run=big")
                expect(one.page.locator("table[data-keys] tbody tr")).to_have_count(100)
                print(f"first rows of {count:,} attempts, {visit}: {time.perf_counter() - begun:.2f} s")
                expect(one.page.locator("[data-part=state]")).to_contain_text("100,000 of 100,000")
                expect(one.page.locator("[data-part=scores] table").first).to_be_visible()
                print(f"all of it, {visit}: {time.perf_counter() - begun:.2f} s")
                one.page.get_by_role("searchbox").fill("077777")
                one.page.get_by_role("button", name="Show").click()
                expect(one.page.get_by_role("status")).to_contain_text("1 attempt")
                one.page.locator("table[data-keys] tbody th a").first.click()
                expect(one.page.locator("h1")).to_have_text("mine 077777")
                assert one.wrong == []
            finally:
                one.context.close()
