"""The report: which attempts it shows, that it stands alone, stays inert and small, and its other forms."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import random
import re
import zlib
from pathlib import Path

import msgspec
import pytest

from harness import runlog
from harness.cli import cli
from harness.core import Ending, Message, Reply, Score, Turn
from harness.errors import SetupError
from harness.metrics import Attempt
from harness.view import report, report_forms
from harness.view.report import choose, gather, read_chosen
from tests.view import making

MEBIBYTE = 2**20


def attempt(task: str, value: float | None, ending: Ending = Ending.COMPLETED, entry: str = "db") -> Attempt:
    return Attempt(entry=entry, task_id=task, epoch=0, ending=ending, score=Score(value=value))


def page_of(*folders: Path, trajectories: int = 30, most_bytes: int = report_forms.MOST_BYTES) -> str:
    made = gather([runlog.read(folder) for folder in folders], trajectories=trajectories)
    return report_forms.as_html(made, folders, most_bytes=most_bytes)


def unpacked(page: str) -> list[str]:
    """Return the pages of the attempts that lie in a report."""
    blocks = re.findall(r'<script type="text/plain" id="block-\d+">([^<]*)</script>', page)
    return [
        text
        for block in blocks
        for text in zlib.decompress(base64.b64decode(block)).decode().split(report_forms.SEPARATOR)
    ]


def test_flips_come_first_then_failures_of_each_kind_then_a_sample() -> None:
    wins = [attempt(f"t{i:02}", 1.0) for i in range(40)]
    first = [*wins, attempt("x", 0.0), attempt("limit", 0.0, Ending.TURN_LIMIT), attempt("odd", 0.0, entry="kg")]
    second = [*wins, attempt("x", 1.0), attempt("limit", 0.0, Ending.TURN_LIMIT), attempt("odd", 1.0, entry="kg")]
    chosen, rule = choose([first, second], 10, seed=3, compared={"db"})
    by_why = {why: [(one.run, one.attempt.task_id) for one in chosen if one.why == why] for why in report.WHYS}
    assert by_why["flip"] == [(0, "x"), (1, "x")]  # kg was not compared
    assert set(by_why["failure"]) == {(0, "limit"), (1, "limit"), (0, "odd")}
    assert len(chosen) == 10 and len(by_why["sample"]) == 5
    assert rule == (
        "Of 86 attempts that count, 10 are here: 2 that came out otherwise in another run, 3 failures (one of each "
        "ending in each environment in turn) and 5 drawn from the rest by seed 3."
    )
    assert choose([first[::-1], second[::-1]], 10, seed=3, compared={"db"})[0] == chosen
    assert choose([first, second], 10, seed=4, compared={"db"})[0] != chosen
    assert choose([first, second], 100)[1] == "All 86 attempts that count are here."
    assert choose([first, second], 0)[0] == []


def test_failures_of_a_kind_take_turns() -> None:
    many = [attempt(f"a{i}", 0.0) for i in range(50)]
    few = [attempt("b", 0.0, Ending.TURN_LIMIT), attempt("c", None, Ending.MODEL_ERROR)]
    chosen, _ = choose([[*many, *few]], 8)
    endings = [one.attempt.ending for one in chosen if one.why == "failure"]
    assert len(endings) == 6
    assert {Ending.TURN_LIMIT, Ending.MODEL_ERROR} <= set(endings)


def test_the_newest_record_is_the_one_that_is_shown(tmp_path: Path) -> None:
    one = making.trajectory("plain", value=None)
    folder = making.write_run(tmp_path / "run", [one, msgspec.structs.replace(one, attempt=1, score=Score(value=1.0))])
    made = gather([runlog.read(folder)], trajectories=5)
    assert [(place, found.attempt) for place, found in read_chosen(made, [folder])] == [(0, 1)]


def test_a_page_stands_alone(runs: Path) -> None:
    page = page_of(runs / "good", runs / "bad")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    allowed = policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in allowed and "unsafe" not in allowed and "http" not in allowed
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL) + re.findall(
        r"<style>(.*?)</style>", page, re.DOTALL
    )
    assert len(inline) == 3
    for text in inline:
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in allowed
    markup = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"""<(link|img|iframe|object|embed|base)\b""", markup)
    assert not re.search(r"""(href|src|action)=["'](?!#)""", markup)
    assert "url(" not in page and "@import" not in page


def test_it_says_how_the_runs_differ(runs: Path) -> None:
    page = page_of(runs / "good", runs / "bad")
    assert "is not compared: A and B played it under different protocols" in page  # two scripted agents
    folders = [runs / "good", runs / "bad"]
    made = gather([runlog.read(folder) for folder in folders], trajectories=6, allow_different=True)
    compared = report_forms.as_html(made, folders)
    assert "B against A" in compared and "DIFFERENT PROTOCOLS" in compared
    assert {one.why for one in made.chosen} >= {"flip"}
    assert 'data-partners="B:' in compared


def test_hostile_text_is_inert_wherever_it_stands(runs: Path) -> None:
    hostile = next(runs.glob("hostile*"))
    page = page_of(hostile, trajectories=100)
    fragments = unpacked(page)
    assert len(fragments) == len(making.HOSTILE)
    tags = re.compile(r"<\s*([a-zA-Z/!][^\s>]*)([^>]*)")
    harmless = {
        "a", "b", "code", "dd", "details", "div", "dl", "dt", "h3", "li", "ol", "p", "section", "span", "summary",
    }  # fmt: skip
    for fragment in fragments:
        for tag, attributes in tags.findall(fragment):
            assert tag.strip("/") in harmless
            assert not re.search(r"\son\w+\s*=|style\s*=|src\s*=", re.sub(r'"[^"]*"', '""', attributes))
    body = page.split("</head>")[1]
    for said in (
        "<img",
        "<iframe",
        "<form",
        "<base",
        "<link",
        "<svg onload",
        "\u202e",
        "\x1b",
        "window.pwned=1</script>",
    ):
        assert said not in body
        assert all(said not in fragment for fragment in fragments)
    assert all("onerror=window" not in re.sub(r"&lt;.*?&gt;", "", fragment) for fragment in fragments)


@pytest.mark.slow
def test_a_thousand_long_attempts_fit_into_ten_megabytes(tmp_path: Path) -> None:
    """Each has 15 turns and 40,000 characters of words that no two attempts share in order."""
    words = Path(making.__file__).read_text().split() + [f"word{i}" for i in range(3000)]
    drawn = random.Random(5)
    plain = making.trajectory("plain")

    def text() -> str:
        return " ".join(drawn.choices(words, k=190))

    def long(number: int) -> bytes:
        replies = [Reply(message=Message(role="assistant", content=text())) for _ in range(15)]
        turns = tuple(Turn(reply=reply, messages=(Message(role="user", content=text()),)) for reply in replies)
        one = msgspec.structs.replace(plain, task_id=f"task {number}", turns=turns)
        return msgspec.json.encode(one) + b"\n"

    folder = making.write_run(tmp_path / "run", [msgspec.structs.replace(plain, task_id="task 0")])
    (folder / runlog.LINES).write_bytes(b"".join(long(number) for number in range(1000)))
    assert (folder / runlog.LINES).stat().st_size > 35 * MEBIBYTE
    page = page_of(folder, trajectories=1000)
    assert len(page.encode()) <= 10_000_000
    assert len(unpacked(page)) == 1000
    assert "Texts are cut at 300 characters, since the page would grow too large." in page
    print(f"1,000 attempts of 40,000 characters: {len(page.encode()):,} bytes")


def test_a_page_keeps_its_bound_and_says_so(runs: Path) -> None:
    whole = page_of(runs / "good", trajectories=8)
    assert len(unpacked(whole)) == 8 and "Texts are cut" not in whole
    bound = len(whole.encode()) - len(re.findall(r'id="block-0">([^<]*)<', whole)[0])
    page = page_of(runs / "good", trajectories=8, most_bytes=bound)
    assert len(page.encode()) <= bound
    assert unpacked(page) == []
    assert "8 of them are left out all the same" in page


def test_the_same_runs_make_the_same_page(runs: Path) -> None:
    assert page_of(runs / "good", runs / "bad") == page_of(runs / "good", runs / "bad")


def invoke(*arguments: str) -> None:
    cli.main(["report", *arguments], standalone_mode=False)


def test_other_forms(runs: Path, tmp_path: Path) -> None:
    folders = [str(runs / "good"), str(runs / "bad")]
    for name in ("r.html", "r.md", "r.csv", "r.json"):
        invoke(*folders, "--out", str(tmp_path / name), "--trajectories", "4")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert [(row["run"], row["environment"]) for row in rows] == [
        (run, name) for run in ("good", "bad") for name in ("kg", "webshop", "overall")
    ]
    assert [row["score"] for row in rows[:3]] == ["1.0"] * 3
    said = json.loads((tmp_path / "r.json").read_text())
    assert [run["overall"]["score"] for run in said["runs"]] == [1.0, 0.0]
    assert said["runs"][0]["standing"].startswith("Not ranked on board mini")
    assert len(said["attempts"]) == 4 and "4 are here" in said["rule"]
    text = (tmp_path / "r.md").read_text()
    assert text.startswith("# scripted/oracle, scripted/random on mini\n")
    assert "| kg | 1.000 |" in text and "## Attempts" in text


def test_plots_as_files(runs: Path, tmp_path: Path) -> None:
    for form, head in (("svg", b"<svg "), ("png", b"\x89PNG")):
        invoke(str(runs / "good"), "--format", form, "--out", str(tmp_path / form))
        files = sorted((tmp_path / form).iterdir())
        assert [path.name for path in files] == [f"endings.{form}", f"scores.{form}"]
        assert all(path.read_bytes().startswith(head) for path in files)


def test_what_cannot_be_written_is_refused(runs: Path, tmp_path: Path) -> None:
    good = str(runs / "good")
    for arguments, message in (
        ((good, good), "a run is named twice"),
        ((str(tmp_path),), "is not a run folder"),
        ((good, "--out", str(tmp_path / "report.docx")), "say --format"),
        ((good, "--out", str(runs / "good" / "run.json" / "r.html")), "cannot write"),
    ):
        with pytest.raises(SetupError, match=message):
            invoke(*arguments)
