"""Tokens and episodes a second of the local engines, and the memory they take: 1, 16 and 64 episodes at once.

Two models of `harness init-model`'s kind: the shape `tiny` in fp32 (HARNESS_MODEL names another folder), and one of ten
million parameters in bf16. One turn: 321 prompt tokens, 64 answered. Six turns: 24 answered in each, after 60 more of
observation. Prompts are random words, no prompt twice. "Nothing kept" changes the first word in every turn, so that no
engine can use again what it has read. Beside ours stand vLLM and `transformers serve` (continuous batching, over HTTP,
text in and out) where they are installed, and transformers' own `generate`: a batch at a time, which reads the whole
history again in every turn, and one episode after the other (eight of them, however many stand above).

Each engine runs in a process of its own, for at least five seconds a cell. Memory is the peak of the processes that
compute (a server's, summed), the libraries included; servers set 15 % of the machine's aside for their caches.

A row is kept in runs/inference once it is measured, and measured again only where the code that it is of has changed:
what was interrupted goes on. `python -m benchmarks inference --again` forgets all rows; `--small` tries each row on a
model of nothing, for its working alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks import _inference_rows as rows
from harness import newmodel
from harness.core import EnvOptions

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "runs" / "inference"
AT_ONCE = (1, 16, 64)
ROW_SECONDS = 3600
TEN_MILLION = newmodel.Shape(2048, 384, 5, 6, 6, 1024, 16384)


class Model(NamedTuple):
    """A model to be measured."""

    name: str
    shape: newmodel.Shape
    dtype: str
    tasks: int = 100
    """Whose gold play its tokenizer is made of."""
    known: str = ""
    """What was measured elsewhere."""


TINY = Model("tiny", newmodel.SHAPES["tiny"], "float32")
MODELS = (
    TINY,
    Model(
        "ten-million",
        TEN_MILLION,
        "bfloat16",
        known="Anchors, two cores, one turn, 64 at once: vLLM 1,175, `generate`, batched, 579.",
    ),
)
NOTHING = Model("nothing", newmodel.SHAPES["nano"], "float32", tasks=4)


class Setting(NamedTuple):
    """How much is measured."""

    models: Sequence[Model]
    at_once: Sequence[int]
    seconds: float
    """Least of a cell."""


FULL = Setting(MODELS, AT_ONCE, 5.0)
SMALL = Setting((NOTHING, NOTHING._replace(name="nothing-bf16", dtype="bfloat16")), (1, 4), 0.0)


def main() -> None:
    """Print the tables, measuring what is not measured yet."""
    show(FULL)


@click.command()
@click.option("--again", is_flag=True, help="Forget what was measured.")
@click.option("--small", is_flag=True, help="Try each row on a model of nothing.")
def program(again: bool, small: bool) -> None:
    """Measure the local engines."""
    if again:
        kept().unlink(missing_ok=True)
    show(SMALL if small else FULL)


def command(words: Sequence[str]) -> int:
    """Do what the words after `python -m benchmarks inference` say; return the exit code."""
    return int(program.main(args=list(words), prog_name="python -m benchmarks inference", standalone_mode=False) or 0)


def show(setting: Setting) -> None:
    """Print the tables of a setting, each row as soon as it is there."""
    heads = [f"{what}, {count}" for what in ("one turn", f"{rows.TURNS} turns") for count in setting.at_once]
    for model in setting.models:
        folder = made(model)
        print(f"### {model.name}: {parameters(folder) / 1e6:.1f} M parameters, {model.dtype}\n")
        print("Tokens sampled a second (episodes a second), by episodes at once; peak memory.\n")
        print("| engine | " + " | ".join(heads) + " | MB |\n|---|" + "---|" * (len(heads) + 1), flush=True)
        lines: dict[str, Any] = {}
        absent = []
        for name in rows.ROWS:
            line = measured(name, model, folder, setting)
            if "missing" in line:
                absent.append(f"{name}: not measured here: {line['missing']}")
                continue
            lines[name] = line
            cells = [f"{tokens:,.0f} ({episodes:.1f})" for tokens, episodes in line["cells"]]
            print(f"| {name} | " + " | ".join(cells) + f" | {line['memory']:,.0f} |", flush=True)
        print("\n" + "\n".join([*ratios(lines, heads), *absent, model.known]).strip() + "\n", flush=True)


def ratios(lines: Mapping[str, Any], heads: Sequence[str]) -> Iterator[str]:
    """Say how many times as many tokens our engine samples as each other."""
    ours = lines.get("hf")
    if ours is None or len(lines) == 1:
        return
    yield "Tokens a second of hf over those of\n"
    yield "| engine | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads)
    for name, line in lines.items():
        if name != "hf":
            found = [f"{mine / other:.2f}" for (mine, _), (other, _) in zip(ours["cells"], line["cells"], strict=True)]
            yield f"| {name} | " + " | ".join(found) + " |"
    yield ""


def measured(name: str, model: Model, folder: Path, setting: Setting) -> dict[str, Any]:
    """Return a row: the one that is kept, or a new one, which is kept unless it is missing."""
    order = {
        "row": name,
        "folder": str(folder),
        "dtype": model.dtype,
        "at_once": list(setting.at_once),
        "seconds": setting.seconds,
    }
    key = hashlib.sha256(json.dumps([order, code()]).encode()).hexdigest()[:16]
    if (line := read().get(key)) is not None:
        return line
    print(f"{model.name}: {name} …", file=sys.stderr, flush=True)
    line = asked(order)
    if "missing" not in line:
        kept().parent.mkdir(parents=True, exist_ok=True)
        with kept().open("a", encoding="utf-8") as file:
            # A line of its own, whatever was cut off before it.
            file.write("\n" + json.dumps({"key": key, **order, **line}) + "\n")
    return line


def asked(order: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a row in a process of its own."""
    words = [sys.executable, "-m", "benchmarks._inference_rows", json.dumps(order)]
    # Processes that share cores must not spin while they wait.
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    with subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            said, _ = process.communicate(timeout=ROW_SECONDS)
        except subprocess.TimeoutExpired:
            return {"missing": f"it took more than {ROW_SECONDS} seconds"}
        finally:
            process.terminate()  # it ends its servers then
    last = said.strip().splitlines()[-1:]
    return dict(json.loads(last[0])) if last and not process.returncode else {"missing": "its process failed"}


def kept() -> Path:
    """Return the file of the rows that were measured."""
    return FOLDER / "rows.jsonl"


def read() -> dict[str, dict[str, Any]]:
    """Return the rows that were measured, by what they are of. A line that was cut off is none."""
    found = {}
    for text in kept().read_text(encoding="utf-8").splitlines() if kept().exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        found[line["key"]] = line
    return found


def code() -> str:
    """Return the digest of what is measured with and of what is ours in it."""
    files = [
        *sorted((ROOT / "harness" / "models").rglob("*.py")),
        *sorted(Path(__file__).parent.glob("_inference*.py")),
    ]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def made(model: Model) -> Path:
    """Return the folder of a model, made where it is not there."""
    if model is TINY and (named := os.environ.get("HARNESS_MODEL")):
        return Path(named).resolve()
    folder = FOLDER / model.name
    if not (folder / "config.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        plays = asyncio.run(newmodel.gold_play("alfworld", model.tasks, 0, EnvOptions()))
        with contextlib.redirect_stdout(sys.stderr):  # what libraries say at their import is no part of the table
            newmodel.make(folder, model.shape, plays, 0)
    return folder


def parameters(folder: Path) -> int:
    """Return how many parameters a model's files hold."""
    from safetensors import safe_open

    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                count = 1
                for size in file.get_slice(name).get_shape():
                    count *= size
                total += count
    return total
