"""The report and the boards' site in a real browser, from files and without a network.

Screenshots go to the folder that HARNESS_SHOTS names, else to the test's own folder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import runlog
from harness.cli import cli
from harness.view import report_forms
from harness.view.report import gather
from tests.view.test_browser import CHROMIUM, FLAGS, THEMES, WAIT, WIDTHS, Watched, axe, sync_playwright

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=WAIT)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def files(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a report of two runs, one of a hostile run, and a site with two rows of runs."""
    folder = tmp_path_factory.mktemp("files")
    hostile = next(runs.glob("hostile*"))
    both = [runs / "good", runs / "bad"]
    for name, folders in (("both", both), ("hostile", [hostile])):
        made = gather([runlog.read(one) for one in folders], trajectories=20, allow_different=True)
        (folder / f"{name}.html").write_text(report_forms.as_html(made, folders), encoding="utf-8")
    arguments = ["leaderboard", "build", "--allow-different", "--trajectories", "3", "--bundles", str(folder / "none")]
    cli.main([*arguments, "--out", str(folder / "site"), *map(str, both)], standalone_mode=False)
    return folder


def opened(browser: object, path: Path, mark: str = "", **options: object) -> Watched:
    """Open a file without a network; whatever is asked for but the site's own files is remembered as wrong."""
    folder = path.parent if path.parent.name != "runs" else path.parent.parent
    watched = Watched(browser, folder.as_uri(), **options)  # type: ignore[arg-type]
    watched.context.set_offline(True)
    watched.page.goto(path.as_uri() + mark)
    return watched


def shot(watched: Watched, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get("HARNESS_SHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    watched.page.screenshot(path=folder / f"{name}.png")


def test_an_attempt_opens_by_link_and_by_key(browser: object, files: Path) -> None:
    watched = opened(browser, files / "both.html")
    page = watched.page
    assert not page.locator("#reader").is_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator("#reader .conversation .message").first.wait_for()
    title = page.locator("#open-title").inner_text()
    assert title == page.locator("tr[data-key] th").first.inner_text()
    page.keyboard.press("n")
    page.wait_for_function("document.getElementById('open-title').dataset.seen !== document.location.hash")
    page.wait_for_url("**#a1")
    page.locator("#partners a").first.click()
    page.locator("#reader .verdict").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_url("**#attempts")
    assert watched.wrong == []
    watched.context.close()


def test_a_deep_link_opens_its_attempt(browser: object, files: Path) -> None:
    watched = opened(browser, files / "both.html", "#a2")
    watched.page.locator("#reader .conversation").wait_for()
    wanted = watched.page.locator('tr[data-key="2"] th').inner_text()
    assert watched.page.locator("#open-title").inner_text() == wanted
    assert watched.wrong == []
    watched.context.close()


def test_no_hostile_text_runs_or_asks_for_anything(browser: object, files: Path) -> None:
    watched = opened(browser, files / "hostile.html")
    page = watched.page
    count = page.locator("tr[data-block]").count()
    assert count == 16
    for number in range(count):
        page.evaluate(f"location.hash = '#a{number}'")
        page.wait_for_function(
            "n => document.querySelector(`tr[data-key='${n}']`).classList.contains('chosen')", arg=number
        )
        page.evaluate("document.querySelectorAll('#reader details').forEach((one) => (one.open = true))")
    assert page.evaluate("window.pwned === undefined")
    assert page.locator("#reader img, #reader script, #reader iframe, #reader form, #reader style").count() == 0
    assert watched.wrong == []
    watched.context.close()


def test_a_board_sorts_and_links_to_its_evidence(browser: object, files: Path) -> None:
    watched = opened(browser, files / "site" / "agentbench-fc.html")
    page = watched.page
    first = page.locator("tbody tr th").first
    assert first.inner_text().startswith("AgentRL")
    page.get_by_role("button", name="OS", exact=True).click()
    shown = page.locator("table").first.locator("tbody tr td:nth-child(8) .score").all_inner_texts()
    values = [float(text) for text in shown]
    assert values == sorted(values, reverse=True) and values[0] == 53.6
    watched.context.close()
    watched = opened(browser, files / "site" / "mini.html")
    watched.page.get_by_role("link", name="scripted/oracle").click()
    watched.page.locator("#results").wait_for()
    assert watched.page.url.endswith("/runs/good.html")
    assert watched.wrong == []
    watched.context.close()


def test_pages_are_whole_without_scripts(browser: object, files: Path) -> None:
    context = browser.new_context(java_script_enabled=False)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto((files / "both.html").as_uri())
    assert page.locator("table").count() >= 4 and page.locator("figure svg").count() >= 3
    assert "unpacking them needs JavaScript" in page.locator("noscript").inner_text()
    page.goto((files / "site" / "bfcl-v3.html").as_uri())
    assert page.locator("tbody tr").count() >= 109
    context.close()


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_and_are_accessible(browser: object, files: Path, tmp_path: Path, width: int, theme: str) -> None:
    boards = [f"site/{name}.html" for name in ("index", "agentbench-fc", "bfcl-v3", "mini")]
    for name in ("both.html#a0", "both.html", *boards):
        path, _, mark = name.partition("#")
        watched = opened(browser, files / path, f"#{mark}" if mark else "", width=width, theme=theme)
        if mark:
            watched.page.locator("#reader .conversation").wait_for()
        assert watched.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        found = axe.Axe().run(watched.page)
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"
        shot(watched, f"{Path(path).stem}{'-attempt' if mark else ''}-{width}-{theme}", tmp_path)
        assert watched.wrong == []
        watched.context.close()


def test_the_files_need_no_folder(browser: object, files: Path, tmp_path: Path) -> None:
    """A report that was mailed lies alone."""
    shutil.copy(files / "both.html", tmp_path / "mailed.html")
    watched = opened(browser, tmp_path / "mailed.html", "#a0")
    watched.page.locator("#reader .conversation").wait_for()
    assert watched.wrong == []
    watched.context.close()
