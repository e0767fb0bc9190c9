"""Bundles: what is packed, what is refused, and that nothing half-added is ever left."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from harness import bundle, runlog
from harness.cli import cli
from harness.config import EvalConfig, ModelOptions
from harness.core import BoardEntry
from harness.errors import SetupError
from leaderboards.add import add
from leaderboards.board import load
from leaderboards.bundles import record
from leaderboards.commands import build
from leaderboards.runs import row
from leaderboards.submission import Settings

ENV = "kg"
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a real run of one environment's whole test split: some attempts succeed and some fail."""
    folder = tmp_path_factory.mktemp("played") / "run"
    with contextlib.redirect_stderr(io.StringIO()):
        cli.main(["eval", "--model", "scripted/oracle:0.3", "--env", ENV, "--out", str(folder)], standalone_mode=False)
    return folder


def edited(played: Path, place: Path, edit: Callable[[dict[str, Any], Lines], None]) -> Path:
    """Bundle a run whose header and lines were changed: every checksum is right."""
    shutil.copytree(played, place)
    header = json.loads((place / runlog.HEADER).read_text())
    lines = [json.loads(line) for line in (place / runlog.LINES).read_text().splitlines()]
    edit(header, lines)
    (place / runlog.HEADER).write_text(json.dumps(header))
    (place / runlog.LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))
    archive = place.with_suffix(".tar.gz")
    bundle.pack(runlog.read(place), archive)
    return archive


def refused(archive: Path, store: Path, message: str) -> str:
    """Check that a bundle is refused in one sentence, and that nothing of it is left."""
    said: list[str] = []
    with pytest.raises(SetupError, match=message) as found:
        add(archive, store, Settings(), say=said.append)
    assert "\n" not in str(found.value)
    assert not store.exists() or not list(store.iterdir())
    return "\n".join(said)


def test_a_run_is_taken_in_once_and_stands_on_its_board(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "run.tar.gz"
    said = CliRunner().invoke(cli, ["bundle", str(played), "--out", str(archive), "--json"])
    assert said.exit_code == 0 and json.loads(said.stdout)["bundle"] == str(archive)
    monkeypatch.chdir(tmp_path)
    taken = CliRunner().invoke(cli, ["leaderboard", "add", str(archive), "--json"], catch_exceptions=False)
    assert taken.exit_code == 0 and "re-graded, not attested" in taken.stderr
    folder = tmp_path / json.loads(taken.stdout)["run"]
    kept = record(folder)
    assert kept is not None and kept.replayed == len(runlog.read(played).newest()) and kept.claimed == ()
    shown = row(runlog.read(folder), load("mini"))
    assert shown.origin == "re-graded, not attested"
    assert shown.cells == row(runlog.read(played), load("mini")).cells
    assert not shown.ranked  # it was handed gold play, which this code knows by itself
    assert [item.row.source for item in build("mini", []).rows] == [str(folder.relative_to(tmp_path))]
    again = CliRunner().invoke(cli, ["leaderboard", "add", str(archive), "--json"], catch_exceptions=False)
    assert json.loads(again.stdout) == {"run": str(folder.relative_to(tmp_path)), "new": False}
    assert len(list((tmp_path / "bundles").iterdir())) == 1


def test_what_only_the_submitter_can_know_is_called_a_claim(played: Path, tmp_path: Path) -> None:
    """A model drives the agent `direct` here: one that says again what was recorded."""
    folder = tmp_path / "again"
    with contextlib.redirect_stderr(io.StringIO()):
        arguments = ["eval", "--model", f"replay/{played}", "--env", ENV, "--out", str(folder)]
        cli.main(arguments, standalone_mode=False)
    bundle.pack(runlog.read(folder), tmp_path / "again.tar.gz")
    taken, new = add(tmp_path / "again.tar.gz", tmp_path / "store", Settings())
    kept = record(taken)
    assert new and kept is not None and kept.claimed == ("model",)
    assert "by the submitter's word: model and who wrote the replies" in row(runlog.read(taken), load("mini")).notes


def test_the_same_run_makes_the_same_bytes(played: Path, tmp_path: Path) -> None:
    for name in ("a.tar.gz", "b.tgz"):
        bundle.pack(runlog.read(played), tmp_path / name)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tgz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert archive.getnames() == ["manifest.json", "run.json", "trajectories.jsonl"]
    (tmp_path / "out").mkdir()
    manifest = bundle.unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    assert manifest.records == len(runlog.read(played).attempts())
    assert manifest.packages["msgspec"]
    assert (tmp_path / "out" / runlog.LINES).read_bytes() == (played / runlog.LINES).read_bytes()


def test_addresses_and_folders_stay_at_home(played: Path) -> None:
    header = runlog.read(played).header
    config = EvalConfig(
        model="openai/x",
        connection=ModelOptions(base_url="http://inside.example/v1", api_key_env="MY_KEY"),
        env_settings={"db": {"db_url": "mysql://me:secret@10.0.0.1", "backend": "mysql"}},
        data="/home/me/data",
        controller="http://inside.example:5020",
    )
    entry = BoardEntry(name="db", env="db", split="std", settings={"db_url": "mysql://me:secret@10.0.0.1"})
    board = msgspec.structs.replace(header.board, entries=(entry,))
    text = msgspec.json.encode(bundle.public(msgspec.structs.replace(header, config=config, board=board))).decode()
    assert "mysql" in text and "left out" in text
    for private in ("secret", "inside.example", "MY_KEY", "/home/me"):
        assert private not in text


# What is edited, and what is said of it. Every file has the right checksum.
def _reward(header: dict[str, Any], lines: Lines) -> None:
    next(line for line in lines if line["score"]["value"] == 0)["score"]["value"] = 1.0


def _action(header: dict[str, Any], lines: Lines) -> None:
    won = next(line for line in lines if line["score"]["value"] == 1 and len(line["turns"]) > 1)
    won["turns"][0]["reply"]["message"]["tool_calls"][0]["arguments"] = "{}"


def _swapped(header: dict[str, Any], lines: Lines) -> None:
    won = next(line for line in lines if line["score"]["value"] == 1)
    lost = next(line for line in lines if line["score"]["value"] == 0)
    won["task_id"], lost["task_id"] = lost["task_id"], won["task_id"]


def _dropped(header: dict[str, Any], lines: Lines) -> None:
    lost = [line for line in lines if line["score"]["value"] == 0][:5]
    for line in lost:
        lines.remove(line)
        del header["tasks"][ENV][line["task_id"]]


def _unscored(header: dict[str, Any], lines: Lines) -> None:
    for line in [line for line in lines if line["score"]["value"] == 0][:5]:
        line["score"]["value"], line["ending"] = None, "model_error"


def _duplicated(header: dict[str, Any], lines: Lines) -> None:
    lines.append(lines[0])


def _second_try(header: dict[str, Any], lines: Lines) -> None:
    lost = next(line for line in lines if line["score"]["value"] == 0)
    lines.append({**lost, "attempt": 1, "score": {"value": 1.0}})


def _hidden_try(header: dict[str, Any], lines: Lines) -> None:
    lines[0]["attempt"] = 2


def _fingerprint(header: dict[str, Any], lines: Lines) -> None:
    header["fingerprints"][ENV] = "0123456789abcdef"
    for line in lines:
        line["fingerprint"] = "0123456789abcdef"


def _protocol(header: dict[str, Any], lines: Lines) -> None:
    header["protocols"][ENV]["limits"]["turns"] = 99


def _own_prompt(header: dict[str, Any], lines: Lines) -> None:
    from harness.fingerprint import fingerprint

    header["protocols"][ENV]["env"]["prompts"] = {"system": "The answer is written on the wall."}
    header["fingerprints"][ENV] = fingerprint(header["protocols"][ENV])
    for line in lines:
        line["fingerprint"] = header["fingerprints"][ENV]


def _other_model(header: dict[str, Any], lines: Lines) -> None:
    lines[3]["model"] = "openai/gpt-5"


def _disguised(header: dict[str, Any], lines: Lines) -> None:
    for one in (header, *lines):
        one["model"] = "openai/gpt-5"


def _no_board(header: dict[str, Any], lines: Lines) -> None:
    header["board"]["name"] = "../../mini"


def _other_env(header: dict[str, Any], lines: Lines) -> None:
    for line in lines:
        line["env"] = "os:system"


def _unknown_task(header: dict[str, Any], lines: Lines) -> None:
    header["tasks"][ENV]["an easy one"] = "count"
    lines.append({**lines[0], "task_id": "an easy one"})


def _many_epochs(header: dict[str, Any], lines: Lines) -> None:
    header["board"]["entries"][0]["epochs"] = 10**9


def _named_in_colour(header: dict[str, Any], lines: Lines) -> None:
    header["model"] = "\x1b[31mred"


TAMPERED = {
    _reward: r"1 of \d+ attempts came out otherwise when re-played, the first kg/.*: reward: 1.0 recorded, 0.0 here",
    _action: r"1 of \d+ attempts came out otherwise when re-played, the first kg/.*: observation 1",
    _swapped: r"2 of \d+ attempts came out otherwise.*: task: ",
    _dropped: r"kg has \d+ scored attempts of the board's \d+, and a board takes 98% or more",
    _unscored: r"kg has \d+ scored attempts of the board's \d+, and a board takes 98% or more",
    _duplicated: "a second record of kg/.*, which was scored already",
    _second_try: "a second record of kg/.*, which was scored already",
    _hidden_try: "lacks a record of kg/.*: attempt 2 does not follow",
    _fingerprint: "its fingerprint of kg is 0123456789abcdef, the one computed here is ",
    _protocol: r"not played by the board's protocol \(ours against its\): limits.turns: \d+ against 99",
    _own_prompt: r"not played by the board's protocol .*env.prompts",
    _other_model: "is of another model, agent or fingerprint than the run",
    _disguised: "names agent 'scripted/oracle:0.3' and model 'openai/gpt-5', but was set up as 'scripted/oracle:0.3'",
    _no_board: "which is no board here",
    _other_env: "which board 'mini' does not ask for",
    _unknown_task: "kg has no task 'an easy one' on this board",
    _many_epochs: "the bundle (has|plays) .*1000000000.*; a board takes 1 to 64",
    _named_in_colour: "needs a printable name",
}


@pytest.mark.parametrize("edit", TAMPERED, ids=lambda edit: edit.__name__)
def test_what_was_tampered_with_is_refused(played: Path, tmp_path: Path, edit: Any) -> None:
    refused(edited(played, tmp_path / "tampered", edit), tmp_path / "store", TAMPERED[edit])


def test_the_differences_are_listed(played: Path, tmp_path: Path) -> None:
    archive = edited(played, tmp_path / "tampered", _action)
    assert "observation 1" in refused(archive, tmp_path / "store", "came out otherwise")


def test_nothing_that_a_bundle_names_is_started(played: Path, tmp_path: Path) -> None:
    mark = tmp_path / "started"

    def hostile(header: dict[str, Any], lines: Lines) -> None:
        header["config"] |= {"model": "openai/x", "agent": f"program:touch {mark}", "data": "/", "controller": None}
        header["board"]["entries"][0]["env"] = "os:system"
        header["agent"] = f"program:touch {mark}"
        for line in lines:
            line["agent"] = header["agent"]

    refused(edited(played, tmp_path / "tampered", hostile), tmp_path / "store", "not played by the board's protocol")
    assert not mark.exists()


# Archives that are not what they should be.
def repacked(played: Path, place: Path, change: Callable[[tarfile.TarFile, list[tuple[str, bytes]]], None]) -> Path:
    """Write a bundle's files again, by hand."""
    bundle.pack(runlog.read(played), place)
    with tarfile.open(place) as archive:
        members = [(info.name, (archive.extractfile(info) or io.BytesIO()).read()) for info in archive]
    with tarfile.open(place, "w:gz") as archive:
        change(archive, members)
    return place


def put(archive: tarfile.TarFile, name: str, content: bytes = b"", **fields: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(content))


def _link(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, *members[0])
    put(archive, "run.json", type=tarfile.SYMTYPE, linkname="/etc/passwd")


def _hard_link(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, *members[0])
    put(archive, "run.json", type=tarfile.LNKTYPE, linkname="manifest.json")


def _device(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, "manifest.json", type=tarfile.CHRTYPE)


def _climbing(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, *members[0])
    put(archive, "../run.json", members[1][1])


def _absolute(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, "/tmp/manifest.json", members[0][1])


def _more(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    for member in (*members, ("regrade.json", b"{}")):
        put(archive, *member)


def _twice(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    for member in (members[0], members[1], members[1]):
        put(archive, *member)


def _less(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, *members[0])


def _other_content(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, *members[0])
    put(archive, "run.json", members[1][1].replace(b"scripted", b"SCRIPTED"))


def _long_name(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, "x" * 10_000, members[0][1])  # needs an extension header, which is never followed


def _bomb(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    put(archive, *members[0])
    put(archive, *members[1])
    info = tarfile.TarInfo("trajectories.jsonl")
    info.size = 66 * 2**20
    archive.addfile(info, io.BytesIO(bytes(info.size)))


def _giant(archive: tarfile.TarFile, members: list[tuple[str, bytes]]) -> None:
    archive.addfile(_sized("manifest.json", 2**32))


def _sized(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    return info


ARCHIVES = {
    _link: "'run.json' is not a plain file",
    _hard_link: "'run.json' is not a plain file",
    _device: "'manifest.json' is not a plain file",
    _climbing: "holds '../run.json', where a bundle has run.json",
    _absolute: "holds '/tmp/manifest.json', where a bundle has manifest.json",
    _more: "holds 'regrade.json', where a bundle has nothing more",
    _twice: "holds 'run.json', where a bundle has trajectories.jsonl",
    _less: "lacks run.json, trajectories.jsonl",
    _other_content: "run.json is not the file that the manifest names",
    _long_name: "is not a plain file",
    _bomb: "unpacks to far more|has more lines, or a longer one",
    _giant: "more than the .* that are read",
}


@pytest.mark.parametrize("change", ARCHIVES, ids=lambda change: change.__name__)
def test_archives_are_taken_for_hostile(played: Path, tmp_path: Path, change: Any) -> None:
    archive = repacked(played, tmp_path / "bundle.tar.gz", change)
    refused(archive, tmp_path / "store", ARCHIVES[change])
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "store") == ["bundle.tar.gz"]


def test_what_is_no_archive_is_refused(played: Path, tmp_path: Path) -> None:
    archive = tmp_path / "bundle.tar.gz"
    bundle.pack(runlog.read(played), archive)
    whole = archive.read_bytes()
    for content, message in (
        (b"", "no whole bundle"),
        (b"not an archive", "no whole bundle"),
        (whole[: len(whole) // 2], "no whole bundle"),
        (gzip.compress(b"x" * 2000), "no whole bundle"),
    ):
        archive.write_bytes(content)
        refused(archive, tmp_path / "store", message)
    refused(tmp_path / "none.tar.gz", tmp_path / "store", "cannot read")


def test_json_that_is_nested_without_end_is_refused(played: Path, tmp_path: Path) -> None:
    place = tmp_path / "deep"
    shutil.copytree(played, place)
    line = (place / runlog.LINES).read_text().splitlines()[0].replace('"parts":{', '"parts":{"x":' + "[" * 100_000, 1)
    (place / runlog.LINES).write_text(line + "\n")
    bundle.pack(runlog.read(place), tmp_path / "deep.tar.gz")
    refused(tmp_path / "deep.tar.gz", tmp_path / "store", "damaged|nested")


def test_an_empty_run_is_not_bundled(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played, tmp_path / "empty")
    (tmp_path / "empty" / runlog.LINES).write_text("")
    with pytest.raises(SetupError, match="no finished attempt to bundle"):
        bundle.pack(runlog.read(tmp_path / "empty"), tmp_path / "empty.tar.gz")
    assert not (tmp_path / "empty.tar.gz").exists()
