"""Makes the README's pictures from a real run: `python docs/screenshots.py [FOLDER]`, needs Playwright and Chromium.

Two scripted agents play the bundled tasks; the pictures are of the report, an attempt in it, and a board of the site.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
AGENTS = {"oracle-spoilt": "scripted/oracle:0.2", "random": "scripted/random"}
FLAGS = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", "--font-render-hinting=none"]
PAGES = {
    "report-attempt": ("report.html#a3", "light", 760),
    "leaderboard": ("site/agentbench-fc.html", "light", 760),
}
"""Picture -> page, colour scheme, height."""
WIDTH = 1280


def harness(*arguments: str, place: Path) -> None:
    """Run a command as a person would; the exit code of a low score is none of ours."""
    command = [sys.executable, "-c", "from harness.cli import main; main()", *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode not in (0, 4):
        sys.exit(f"harness {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")


def prepare(place: Path, limit: int) -> None:
    """Play the runs, and write the report and the site."""
    for name, model in AGENTS.items():
        harness("eval", "--model", model, "--limit", str(limit), "--out", f"runs/{name}", place=place)
    runs = [f"runs/{name}" for name in AGENTS]
    harness("report", *runs, "--out", "report.html", "--allow-different", place=place)
    harness("leaderboard", "build", *runs, "--out", "site", "--allow-different", place=place)


def shoot(place: Path, out: Path) -> None:
    """Take the pictures."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("there is no Chromium: apt-get install chromium")
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS, timeout=120_000)
        for name, (page_name, scheme, height) in PAGES.items():
            file, _, mark = page_name.partition("#")
            page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme=scheme)
            page.goto((place / file).as_uri() + (f"#{mark}" if mark else ""), timeout=120_000)
            if mark:
                page.locator("#reader .conversation").wait_for(timeout=120_000)
            page.screenshot(path=out / f"{name}.png", timeout=120_000, animations="disabled")
            page.close()
        browser.close()


def main() -> None:
    """Make every picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=HERE / "pictures", help="folder of the pictures")
    parser.add_argument("--limit", type=int, default=30, help="tasks of each environment")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), asked.limit)
        shoot(Path(folder), asked.out.resolve())


if __name__ == "__main__":
    main()
