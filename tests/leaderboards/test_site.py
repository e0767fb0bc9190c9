"""The boards' site: published tables as they are, evidence behind each run's row, the same bytes at every build."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="the extra 'view' is not installed")
pytest.importorskip("vl_convert", reason="the extra 'view' is not installed")

from harness import runlog
from harness.errors import SetupError
from leaderboards.board import layout, load
from leaderboards.bundles import RECORD
from leaderboards.published import FOLDER
from leaderboards.site import MANIFEST, build_site, make
from leaderboards.site.pages import TITLES
from tests.leaderboards.played import once, play

EVIL = "<img src=x onerror=alert(1)>"


class Table(HTMLParser):
    """Reads the rows of a page's tables: a list of column -> text for each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[dict[str, str]]] = []
        self.links: dict[str, str] = {}
        self._columns: list[str] = []
        self._cells: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
            self._columns = []
        if tag == "tr":
            self._cells = []
        if tag in ("td", "th"):
            self._cells.append("")
            self._inside = True
        if tag == "a" and self._inside:
            self.links[dict(attrs)["href"] or ""] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False
        if tag == "tr" and self._columns:
            self.tables[-1].append(dict(zip(self._columns, self._cells, strict=True)))
        elif tag == "tr":
            self._columns = self._cells

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._cells[-1] += data


@pytest.fixture(scope="module")
def site() -> dict[str, bytes]:
    """Return the site of the published rows alone."""
    return make([], trajectories=0)


def rows_of(page: bytes, table: int = 0) -> dict[str, dict[str, str]]:
    return {row["Model"]: row for row in Table(page.decode()).tables[table]}


def test_agentbench_is_as_published(site: dict[str, bytes]) -> None:
    found = rows_of(site["agentbench-fc.html"])
    with (FOLDER / "scores.csv").open(encoding="utf-8", newline="") as lines:
        published = [line for line in csv.DictReader(lines) if line["board"] == "agentbench-fc"]
    assert len(published) > 100
    for line in published:
        star = "*" if line["note"] else ""
        spread = f" ({line['spread']})" if line["spread"] else ""
        column = "Overall" if line["env"] == "overall" else TITLES[line["env"]]
        assert found[line["model"]][column] == f"{line['value']}{star}{spread}"
        assert found[line["model"]]["Origin"] == "published, not reproduced"
    assert {row["Rank"] for row in found.values()} >= {"–", "20"}
    assert {row["Group"] for row in found.values()} == {"API", "open", "trained"}


def test_bfcl_is_as_published_to_the_last_column(site: dict[str, bytes]) -> None:
    first, second = rows_of(site["bfcl-v3.html"]), rows_of(site["bfcl-v3.html"], 1)
    details = layout("bfcl-v3").details
    assert len(details) == 14
    with (FOLDER / "bfcl-v3.csv").open(encoding="utf-8", newline="") as lines:
        published = list(csv.DictReader(lines))
    assert len(published) == 109
    for line in published:
        name = f"{line['model']} ({line['mode']})" if line["mode"] else line["model"]
        shown = first[name]
        assert (shown["Overall"], shown["Live"], shown["Multi-turn"], shown["Non-live AST"]) == (
            line["overall"], line["live"], line["multi_turn"], line["non_live_ast"],
        )  # fmt: skip
        assert shown["US$ / 1,000 calls"] == line["cost_usd_per_1k_calls"].replace("N/A", "")
        assert shown["Seconds / call"] == line["latency_mean_s"].replace("N/A", "")
        for column in details:
            assert second[name][column.replace("_", " ")] == line[column]


def test_pages_stand_alone(site: dict[str, bytes]) -> None:
    for name, content in site.items():
        if name.endswith(".html"):
            assert "default-src 'none'" in unescape(content.decode())
            text = re.sub(r"<(script|style)>.*?</\1>", "", content.decode(), flags=re.DOTALL)
            assert not re.search(r"""(src|href|action)=["']?(https?:)?//""", text)
            assert b"@import" not in content and b"url(" not in content
            for link in re.findall(r'href="([^"#]+)"', text):
                assert link in site, link


async def test_each_run_links_to_its_evidence(tmp_path: Path) -> None:
    board = once(load("agentbench-fc"))
    values = {entry.name: {"": [float(task % 2) for task in range(entry.tasks or 0)]} for entry in board.entries}
    await play(tmp_path / "a" / "mine", board, values, model=f"openai/{EVIL}")
    await play(tmp_path / "b" / "mine", board, {"db": {"": [1.0, None]}}, model="openai/part")
    shutil.copytree(tmp_path / "a" / "mine", tmp_path / "c" / "theirs")
    (tmp_path / "c" / "theirs" / RECORD).write_text(
        json.dumps({"sha256": "0" * 64, "harness": "0.1", "replayed": 903, "claimed": ["model"]})
    )
    runs = [runlog.read(tmp_path / place) for place in ("a/mine", "b/mine", "c/theirs")]
    pages = make(runs, trajectories=3)
    text = pages["agentbench-fc.html"].decode()
    assert EVIL not in text and "&lt;img" in text
    assert {link for link in Table(text).links if link.startswith("runs/")} == {
        "runs/mine.html", "runs/mine-2.html", "runs/theirs.html",
    }  # fmt: skip
    rows = Table(text).tables[0]
    by_origin = {row["Origin"]: row for row in rows}
    assert set(by_origin) == {"run here", "re-graded, not attested", "adapted", "published, not reproduced"}
    mine, part = by_origin["run here"], by_origin["adapted"]
    assert (mine["n"], mine["Errors"], mine["Date"][:2], mine["US$ / attempt"]) == ("903", "0.0 %", "20", "0.0100")
    assert mine["Rank"] != "–" and "db" in mine["Fingerprint"]
    assert (part["Rank"], part["Overall"], part["DB"], part["Errors"]) == ("–", "–", "≥50.0", "50.0 %")
    assert "by the submitter&#39;s word: model and who wrote the replies" in text
    assert "db 2 of 300 tasks" in text
    for content in pages.values():
        assert str(tmp_path).encode() not in content


async def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    await play(tmp_path / "runs" / "one", load("mini"), {"db": {"": [1.0]}})
    out = tmp_path / "site"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(SetupError, match="holds something that is no site of boards"):
        build_site(out, [tmp_path / "runs" / "one"], tmp_path / "none", trajectories=0)
    assert [path.name for path in out.iterdir()] == ["thesis.txt"]


async def test_what_an_earlier_build_made_is_taken_away(tmp_path: Path) -> None:
    await play(tmp_path / "one", load("mini"), {"db": {"": [1.0]}})
    await play(tmp_path / "two", load("mini"), {"db": {"": [1.0]}})
    out = tmp_path / "site"
    build_site(out, [tmp_path / "one"], tmp_path / "none", trajectories=1)
    stamp = (out / "bfcl-v3.html").stat().st_mtime_ns
    manifest = json.loads((out / MANIFEST).read_text())
    (tmp_path / "outside").write_text("mine")
    (out / MANIFEST).write_text(json.dumps({**manifest, "../outside": "0"}))
    build_site(out, [tmp_path / "two"], tmp_path / "none", trajectories=1)
    assert (out / "runs" / "two.html").exists() and not (out / "runs" / "one.html").exists()
    assert (tmp_path / "outside").exists()
    assert (out / "bfcl-v3.html").stat().st_mtime_ns == stamp  # what is the same is not written again


@pytest.fixture
def twice(tmp_path: Path) -> Iterator[list[Path]]:
    """Yield two folders to build in."""
    for name, runs in (("here", "runs"), ("a/very/different place", "deeper/runs")):
        (tmp_path / name / runs).mkdir(parents=True)
    yield [tmp_path / "here", tmp_path / "a/very/different place"]


@pytest.mark.slow
async def test_a_rebuild_is_byte_identical(twice: list[Path], tmp_path: Path) -> None:
    board = once(load("agentbench-fc"))
    values = {entry.name: {"x": [1.0, 0.0, None] * 30} for entry in board.entries}
    await play(tmp_path / "mine", board, values, model="openai/mine")
    await play(tmp_path / "other", load("mini"), {"db": {"b": [1.0] * 40, "a": [0.0] * 40}}, model="openai/other")
    worlds = (("UTC", "0", "C", "runs"), ("Pacific/Kiritimati", "4711", "C.UTF-8", "deeper/runs"))
    for place, (zone, seed, locale, runs) in zip(twice, worlds, strict=True):
        for name in ("mine", "other"):
            shutil.copytree(tmp_path / name, place / runs / name)
        command = [sys.executable, "-c", "from harness.cli import main; main()", "leaderboard", "build", "--out", "out"]
        environment = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed, "LC_ALL": locale}
        folders = [f"{runs}/{name}" for name in ("mine", "other")]
        subprocess.run([*command, *folders], cwd=place, env=environment, check=True, timeout=250, capture_output=True)
    first, second = (
        {
            str(path.relative_to(place / "out")): path.read_bytes()
            for path in (place / "out").rglob("*")
            if path.is_file()
        }
        for place in twice
    )
    assert len(first) == 13
    assert {name for name in first if first[name] != second.get(name)} == set()
    assert set(first) == set(second)
