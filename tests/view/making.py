"""Runs for the viewer's tests: real ones, hostile ones, and a training run's plain files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from harness.cli import cli
from harness.config import EvalConfig
from harness.core import (
    Board,
    BoardEntry,
    Ending,
    Failure,
    Message,
    Reply,
    Score,
    Tokens,
    ToolCall,
    ToolSpec,
    Trajectory,
    Turn,
    Usage,
)
from harness.runlog import HEADER, LINES, Header

ENVS = "kg,webshop"

HOSTILE = (
    "<script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "</title></style></textarea><script>window.pwned=1</script>",
    "' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1",
    "javascript:window.pwned=1",
    "{{ 7 * 7 }}{% raw %}${7*7}#{7*7}",
    "<!--<img src=x onerror=window.pwned=1>-->",
    "]]><iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<a href='http://127.0.0.1:9/leak'>x</a><link rel=stylesheet href=http://127.0.0.1:9/leak.css>",
    "<style>*{background:url(http://127.0.0.1:9/leak)}</style>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/leak'><base href=http://127.0.0.1:9/>",
    "\u202e\u2066gnp.exe\u200b\ufeff\x1b[2J\x00\x07\U000e0041",
    "&lt;script&gt;&#60;script&#62;\\u003cscript\\u003e",
    "<form action=http://127.0.0.1:9/leak><input name=q><button>ok</button></form>",
    "%3Cscript%3E&run=other&entry=x#turn-1?a=b;c",
)
"""Texts that would run, fetch, reorder or steer if a page took them for more than text."""


def play(folder: Path, model: str, *options: str) -> Path:
    """Play the bundled tasks of two quick environments with a scripted agent."""
    arguments = ["eval", "--model", model, "--env", ENVS, "--limit", "4", "--out", str(folder), *options]
    with contextlib.redirect_stderr(io.StringIO()):
        cli.main(arguments, standalone_mode=False)
    return folder


def trajectory(text: str, *, number: int = 0, value: float | None = 0.0) -> Trajectory:
    """Return an attempt with a text in every field that can hold one."""
    call = ToolCall(id=text, name=text, arguments=json.dumps({text: text}))
    broken = ToolCall(id=text, name=text, arguments=text)
    tool = ToolSpec(name=text, description=text, parameters={"type": "object", text: text})
    count = 4
    sampled = Tokens(
        prompt_ids=(1, 2),
        sampled_ids=tuple(range(count)),
        logprobs=(-0.01, -0.3, -1.5, -9.0),
        versions=(3, 3, 4, 4),
        mask=(True, True, False, True),
        mixed_kv=(False, False, False, True),
        engine=text,
        temperature=1.0,
    )
    usage = Usage(input_tokens=12_345, output_tokens=17, calls=1, seconds=0.5, cost_usd=0.01)
    reply = Reply(
        message=Message(role="assistant", content=text, reasoning=text, tool_calls=(call, broken)),
        usage=usage,
        tokens=sampled,
    )
    answers = (
        Message(role="tool", content=text, tool_call_id=text),
        Message(role="user", content=text),
    )
    return Trajectory(
        entry=text,
        task_id=f"{text} {number}",
        epoch=0,
        attempt=0,
        env=text,
        split=text,
        group=text,
        digest=text,
        agent=text,
        model=text,
        fingerprint=text,
        seed=1,
        opening=(Message(role="system", content=text), Message(role="user", content=text)),
        tools=(tool,),
        turns=(Turn(reply=reply, messages=answers, tools=(tool,), env_seconds=0.002),),
        ending=Ending.ENV_ERROR if value is None else Ending.COMPLETED,
        score=Score(value=value, parts={text: text}),
        failure=Failure(boundary=text, message=text, detail=text),
        usage=usage,
        started=text,
        seconds=1.5,
    )


def write_run(folder: Path, attempts: Sequence[Trajectory], text: str = "plain") -> Path:
    """Write a run folder with these attempts, and a text wherever its header can hold one."""
    folder.mkdir(parents=True)
    entries = list(dict.fromkeys(one.entry for one in attempts))
    header = Header(
        created=text,
        config=EvalConfig(model=text),
        board=Board(
            name=text,
            title=text,
            entries=tuple(BoardEntry(name=one, env=text, split=text) for one in entries),
            note=text,
        ),
        whole=len(entries),
        model=text,
        agent=text,
        fingerprints=dict.fromkeys(entries, text),
        protocols={one: {text: text} for one in entries},
        tasks={entry: {one.task_id: one.group for one in attempts if one.entry == entry} for entry in entries},
        unavailable={text: text},
    )
    (folder / HEADER).write_bytes(msgspec.json.encode(header))
    (folder / LINES).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in attempts))
    return folder


def update(version: int, *, task: str = "kg", seconds: float | None = None) -> dict[str, object]:
    """Return a line of a training run's metrics."""
    return {
        "version": version,
        "seconds": float(60 * version if seconds is None else seconds),
        "attempts": 16,
        f"task/{task}/reward": 0.1 * version,
        f"task/{task}/success": min(1.0, 0.05 * version),
        "task/webshop/reward": 0.2,
        "task/webshop/success": 0.3,
        f"task/{task}/loss_share": 0.75,
        "task/webshop/loss_share": 0.25,
        "reward/mean": 0.15 * version,
        "lag/trained/0/0": 100,
        "lag/trained/0/1": 40,
        "lag/trained/1/2": 20,
        "lag/trained/0/max": 1,
        "tokens/generated_per_second": 900.0 + version,
        "tokens/trained_per_second": 700.0,
        "idle/learner": 0.25,
        "idle/engine": 0.1,
        "ess": 0.9,
        "loss": 0.01 * version,
    }


def write_training(folder: Path, lines: Sequence[dict[str, object]], alarms: Sequence[dict[str, object]] = ()) -> Path:
    """Write a training run's plain files."""
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "alarms.jsonl").write_text("".join(json.dumps(line) + "\n" for line in alarms))
    return folder


@contextlib.contextmanager
def serving(cache: Path, *arguments: str) -> Iterator[str]:
    """Run the viewer's command in a process of its own; yield the address that it says."""
    command = [sys.executable, "-c", "from harness.cli import main; main()", "view", *arguments]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    process = subprocess.Popen(
        [*command, "--port", "0", "--no-open"], stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("Showing http://127.0.0.1:"), said + process.stderr.read()
        yield said.split()[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)
