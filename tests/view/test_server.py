"""The viewer over real HTTP: what it shows, what it refuses, and that nothing in an address becomes more than text."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import runlog
from harness.errors import SetupError
from harness.view import html, pages, tasks
from harness.view.library import Library
from tests.view import making

PAGES = (
    "/",
    "/run?run=good",
    "/compare",
    "/compare?a=bad&b=good",
    "/train?run=learning",
    "/static/style.css",
    "/static/view.js",
)


def get(address: str, path: str, **headers: str) -> httpx2.Response:
    return httpx2.get(address + path, headers=headers, timeout=120)


def attempt_of(runs: Path, name: str) -> str:
    first = next(iter(runlog.read(runs / name).attempts()))
    return urlencode({"entry": first.entry, "task": first.task_id, "epoch": first.epoch})


@pytest.mark.parametrize("path", PAGES)
def test_each_page_comes_under_the_strict_policy(address: str, path: str) -> None:
    answer = get(address, path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in answer.text
    assert "style=" not in answer.text


def test_a_run_shows_the_figures_of_its_table(address: str, runs: Path) -> None:
    text = get(address, "/run?run=good").text
    assert "kg" in text
    assert "webshop" in text
    assert "1.000" in text
    assert "8 of 8 attempts" in text


def test_attempts_are_filtered_searched_and_sorted_by_the_address(address: str, runs: Path) -> None:
    every = runlog.read(runs / "good").attempts()
    assert f"{len(every)} attempts" in get(address, "/run?run=good").text
    kept = [one for one in every if one.entry == "kg"]
    assert f"{len(kept)} attempts" in get(address, "/run?run=good&entry=kg").text
    assert "0 attempts" in get(address, "/run?run=good&outcome=failed").text
    one = get(address, f"/run?run=good&entry=kg&q={quote(kept[0].task_id)}").text
    assert "1 attempt<" in one
    rows = get(address, "/run?run=good&sort=task").text
    places = [rows.index(f">{name}</a>") for name in sorted({one.task_id for one in every})]
    assert places == sorted(places)


def test_an_attempt_is_a_conversation_with_its_neighbours(address: str, runs: Path) -> None:
    text = get(address, f"/attempt?run=good&{attempt_of(runs, 'good')}&in_entry=kg").text
    assert "Agent, turn 1" in text
    assert "1 solved" in text
    assert 'rel="up" href="/run?run=good&amp;entry=kg"' in text


def test_a_comparison_links_each_flip_to_both_attempts(address: str, runs: Path) -> None:
    text = get(address, "/compare?a=bad&b=good").text
    assert "Two protocols" in text
    assert "Gained by" in text
    side = get(address, f"/pair?a=bad&b=good&{attempt_of(runs, 'good')}").text
    assert 'id="A-turn-1"' in side
    assert 'id="B-turn-1"' in side


def test_a_training_run_shows_curves_alarms_and_evaluations(address: str) -> None:
    for axis in ("updates", "hours", "samples"):
        text = get(address, f"/train?run=learning&x={axis}").text
        for title in ("Reward by task", "Success by task", "Lag of the trained tokens", "Throughput", "Idle",
                      "Share of the loss by task", "Validation score"):  # fmt: skip
            assert title in text
        assert "one task dominates" in text
        assert "validation 4" in text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1].evil", "10.0.0.1"]
)
def test_a_name_that_is_not_loopbacks_gets_nothing(address: str, host: str) -> None:
    answer = get(address, "/run?run=good", Host=host)
    assert answer.status_code in {400, 421}
    assert "kg" not in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:7860"])
def test_loopbacks_own_names_pass(address: str, host: str) -> None:
    assert get(address, "/", Host=host).status_code == 200


def test_it_only_shows(address: str) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert httpx2.request(method, address + "/run?run=good", timeout=120).status_code == 405


def test_another_site_cannot_read(address: str) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    assert httpx2.get(address + "/", headers=headers, timeout=120).status_code == 403
    answer = get(address, "/", Origin="http://evil.example")
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["/static/../server.py", "/static/..%2fserver.py", "/static/%2e%2e%2fserver.py", "/static//etc/passwd",
     "/etc/passwd", "/run?run=../good", "/run?run=/etc", "/run?run=good/../bad", "/train?run=good", "/run?run=learning",
     "/attempt?run=good&entry=kg&task=../../etc/passwd&epoch=0", "/nothing"],
)  # fmt: skip
def test_no_part_of_an_address_becomes_a_path(address: str, path: str) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=120) as line:  # as it stands: no client tidies the path
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"content-security-policy" in answer
    assert b"root:" not in answer


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    page=st.sampled_from(["/run", "/attempt", "/compare", "/pair", "/train"]),
    query=st.dictionaries(
        st.sampled_from(
            ["run", "a", "b", "entry", "task", "epoch", "attempt", "first", "page", "sort", "q", "x", "in_sort"]
        ),
        st.one_of(
            st.sampled_from(["good", "bad", "learning", "kg", "-1", "999999999999", "١", "-turns"]),
            st.text(max_size=30),
        ),
    ),
)
def test_no_address_breaks_the_server(address: str, page: str, query: dict[str, str]) -> None:
    text = urlencode(query, errors="replace") if all(value.isprintable() for value in query.values()) else "q=%00%ff"
    assert get(address, f"{page}?{text}").status_code in {200, 404, 409}


def test_an_unchanged_page_is_not_sent_again(address: str) -> None:
    first = get(address, "/run?run=good")
    again = get(address, "/run?run=good", **{"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert not again.content


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no folder"):
        Library([tmp_path / "nowhere"])
    with pytest.raises(SetupError, match="is not a run folder"):
        Library([tmp_path]).name_of(tmp_path)


def test_runs_of_one_name_keep_names_of_their_own(tmp_path: Path) -> None:
    folders = [making.write_run(tmp_path / top / "same", [making.trajectory("x")]) for top in ("one", "two")]
    library = Library(folders)
    try:
        assert sorted(library.places()) == ["same", "two/same"]
        assert [library.name_of(folder) for folder in folders] == ["same", "two/same"]
    finally:
        library.close()


def test_a_damaged_line_is_told_and_the_rest_is_shown(tmp_path: Path) -> None:
    folder = making.write_run(tmp_path / "hurt", [making.trajectory("x", number=at) for at in range(3)])
    log = folder / runlog.LINES
    first, _, third = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(first + b'{"half": \n' + third)
    text = run_page(Library([tmp_path]), "hurt")
    assert "1 damaged line" in text
    assert "2 attempts" in text


def test_a_run_that_grows_is_read_on(tmp_path: Path) -> None:
    every = [making.trajectory("x", number=at) for at in range(4)]
    log = making.write_run(tmp_path / "growing", every) / runlog.LINES
    lines = log.read_bytes().splitlines(keepends=True)
    library = Library([tmp_path])
    for content, done in (
        (lines[0] + lines[1][:50], 1),
        (b"".join(lines[:3]), 3),
        (lines[0], 1),
        (b"".join(lines), 4),
    ):
        log.write_bytes(content)
        assert f"{done} of 4 attempts" in run_page(library, "growing")


def run_page(library: Library, name: str) -> str:
    return html.render("run.html", **pages.run(library.open(name), tasks.Filter()))


def test_a_taken_port_is_one_sentence(runs: Path) -> None:
    from click.testing import CliRunner

    from harness.cli.view import command

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(command, [str(runs), "--port", port, "--no-open"])
    assert isinstance(result.exception, SetupError)
    assert "choose another with --port" in str(result.exception)
