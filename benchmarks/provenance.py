"""What it costs to keep of every token how it came about: log-probability, weight version, engine, turn and mask.

A model of nothing plays KG with the engine that training has, so tokens are made as cheaply as they ever are, which
makes the share largest. Seconds are of the same run: of sampling (wall-clock over all tokens sampled), of making
trajectories the arrays that are trained on, and of the same from ids and mask alone, which any trainer needs. Bytes
are of those arrays, of the buffer that a checkpoint writes, and of the run log, compressed and not.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import timeit
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import numpy as np

from harness import newmodel, runlog
from harness.core import EnvOptions, Tokens, Trajectory
from training import buffer, samples
from training.values import KINDS, Attempt, Group

TASKS, EPOCHS, ROUNDS = 40, 4, 5
NEEDED = ("ids", "mask")
"""Of the arrays, what a trainer has that keeps nothing of how a token came about."""


def played(folder: Path) -> tuple[list[Trajectory], float]:
    """Return attempts of a model of nothing, and the seconds that sampling them took."""
    model = folder / "model"
    newmodel.make(model, newmodel.SHAPES["nano"], asyncio.run(newmodel.gold_play("kg", 40, 0, EnvOptions())), seed=0)
    words = ["--env", "kg", "--split", "train", "--limit", str(TASKS), "--epochs", str(EPOCHS), "--temperature", "1"]
    limits = ["--turn-limit", "6", "--max-tokens", "64", "--concurrency", "64", "--out", str(folder / "run")]
    harness = [sys.executable, "-c", "from harness.cli import main; main()"]
    command = [*harness, "eval", "--model", f"hf/{model}", *words, *limits]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    if not (folder / "run" / "trajectories.jsonl").is_file():
        raise RuntimeError(done.stderr)
    found = list(runlog.read(folder / "run").trajectories())
    begun = {each.key: datetime.fromisoformat(each.started).timestamp() for each in found}
    return found, max(begun[each.key] + each.seconds for each in found) - min(begun.values())


def seconds(what: Callable[[], object]) -> float:
    """Return how long something takes, the median of some rounds."""
    return statistics.median(timeit.repeat(what, number=1, repeat=ROUNDS))


def bare(turns: Sequence[Tokens]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and mask of an attempt, and nothing else."""
    ids: list[int] = []
    mask: list[bool] = []
    for tokens in turns:
        new = tokens.prompt_ids[len(ids) :] if list(tokens.prompt_ids[: len(ids)]) == ids else tokens.prompt_ids
        ids += [*new, *tokens.sampled_ids]
        mask += [False] * len(new) + list(tokens.mask)
    return np.array(ids), np.array(mask)


def logged(trajectories: Sequence[Trajectory]) -> bytes:
    """Return trajectories as the run log has them."""
    return b"\n".join(msgspec.json.encode(each) for each in trajectories)


def without_tokens(trajectory: Trajectory) -> Trajectory:
    """Return a trajectory as an API's would be: without what was sampled token by token."""
    turns = [
        msgspec.structs.replace(turn, reply=msgspec.structs.replace(turn.reply, tokens=None))
        for turn in trajectory.turns
    ]
    return msgspec.structs.replace(trajectory, turns=tuple(turns))


def main() -> None:
    """Play, and print what keeping it costs."""
    with tempfile.TemporaryDirectory() as temporary:
        found, sampling = played(Path(temporary))
    turns = [[tokens for turn in each.turns if (tokens := turn.reply.tokens)] for each in found]
    attempts: list[Attempt] = [samples.attempt(each) for each in found]
    parts = [part for each in attempts for part in each.segments]
    trained, held = sum(part.tokens for part in parts), sum(len(part.ids) for part in parts)
    rows = {
        "sampling": sampling,
        "the arrays, provenance and all": seconds(lambda: [samples.segments(each) for each in turns]),
        "ids and mask alone": seconds(lambda: [bare(each) for each in turns]),
    }
    print(f"{len(found)} attempts, {held:,} tokens, {trained:,} of them sampled.\n")
    print("| seconds | µs a sampled token | share of sampling |\n|---|---|---|")
    for name, taken in rows.items():
        print(f"| {name} | {1e6 * taken / trained:,.2f} | {100 * taken / sampling:.2f} % |")
    group = Group(group_id=0, env="kg", task_id="0", attempts=tuple(attempts), admitted_version=0)
    arrays = {name: sum(getattr(part, name).nbytes for part in parts) for name in KINDS}
    whole, said = logged(found), logged([without_tokens(each) for each in found])
    sizes = {
        "the arrays": sum(arrays.values()),
        "of these, ids and mask": sum(arrays[name] for name in NEEDED),
        "the buffer in a checkpoint": len(buffer.encode([group])),
        "the run log, beyond the messages": len(whole) - len(said),
        "the same, zlib": len(zlib.compress(whole)) - len(zlib.compress(said)),
    }
    print("\n| bytes | a token | a sampled token |\n|---|---|---|")
    for name, size in sizes.items():
        print(f"| {name} | {size / held:,.1f} | {size / trained:,.1f} |")


if __name__ == "__main__":
    main()
