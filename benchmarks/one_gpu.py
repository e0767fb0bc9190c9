"""The recipe `one-gpu` on one GPU that learner and engines share: tokens a second, and where the time goes.

The model has the shape of Qwen2.5-0.5B (494 million weights, a vocabulary of 151,936) and begins with random ones; a
minute or two of supervised learning on gold play lets it play, so that attempts are as long and as different as they
are in training. Both ways begin with that model and make as many updates; the first ones, in which collection fills
its queues and passes are recorded, are not counted. A turn that the model does not end ends after 128 tokens; groups
whose attempts all ended alike are not learnt from, as ever. Evaluations in the background are left out.

`python -m benchmarks one_gpu --measure` measures it on a machine with such a GPU and keeps what was found beside this
file; without, what was found is printed. Model FLOPs: two an operation, of every weight a token passes and of attention
to what stands before it; learning is a pass forward, one backward that takes twice as many, and one forward for the
policy at the start of the update (`prox`). What is computed again to save memory and what fills rows up is not counted.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.training import measure
from harness import newmodel
from harness.config import LocalOptions, merge
from harness.core import EnvOptions, Json
from harness.errors import SetupError
from harness.models.sampler import Request
from training import budget, machine, recipe, run
from training.begin import begin
from training.budget import Size
from training.recipe import Recipe

RESULTS = Path(__file__).with_name("one_gpu.json")
FOLDER = Path("runs") / "one_gpu"
SEED = 0
COUNTED_FROM = 3
"""Of a run's updates, the first that is counted."""
WAYS: Mapping[str, Mapping[str, Any]] = {"asynchronous, eta 2": {}, "synchronous": {"eta": 0}}
PASSES = 4
"""Of an update, in passes forward: one for `prox`, and one with its backward."""
PROMPT, UNCOUNTED, COUNTED = 800, 20, 80
"""Tokens before those that are sampled by an engine alone, and how many of these are counted, and not before."""
LENGTH = 1024
"""Of the sequences of the learner alone."""
PEAK_TERAFLOPS = {"H100": 989.0, "H200": 989.0, "A100": 312.0, "L40S": 362.0}
"""Of bfloat16, dense, as the maker says; part of the card's name -> 10^12 operations a second."""
CONFIGURATION = {
    "vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "intermediate_size": 4864, "max_position_embeddings": 32768, "rope_theta": 1e6,
    "tie_word_embeddings": True,
}  # fmt: skip
"""Of Qwen2.5-0.5B, from its config.json."""


class Quiet:
    """Stands for the evaluations, of which there are none."""

    def __init__(self) -> None:
        self.state: dict[str, Json] = {}

    def say(self, line: str) -> None:
        """Tell a line of the run."""
        print(line, file=sys.stderr, flush=True)

    def begin(self, version: int, folder: Path) -> None:
        """Score nothing."""

    def pinned(self) -> list[Path]:
        """Return that nothing must stay."""
        return []


class Plan(NamedTuple):
    """How much is done."""

    tasks: int
    """Of each environment, whose gold play the model begins with."""
    seconds: float
    """Of supervised learning."""
    updates: int
    above: Mapping[str, Any] = {}
    """Laid over the recipe."""
    configuration: Mapping[str, Any] = CONFIGURATION


def drawn(folder: Path, plan: Plan) -> Path:
    """Make a model of random weights whose tokenizer knows the environments' words, where it is not there."""
    model = folder / "drawn"
    if not model.is_dir():
        plays = [
            play
            for name, settings in recipe.load("one-gpu", {}).envs.items()
            for play in asyncio.run(newmodel.gold_play(name, 40, SEED, EnvOptions(settings=settings)))
        ]
        newmodel.make(model, newmodel.SHAPES["small"], plays, SEED)
        _widen(model, plan)
    return model


def _widen(folder: Path, plan: Plan) -> None:
    """Put random weights of another shape in the place of a model's; its tokenizer stays."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, set_seed

    own = json.loads((folder / "config.json").read_text())
    ends = {name: own.get(name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    set_seed(SEED)
    with torch.device(machine.default_device()):
        made = Qwen2ForCausalLM(Qwen2Config(**plan.configuration, **ends))
    made.save_pretrained(folder)


def wanted(folder: Path, plan: Plan, way: str) -> Recipe:
    """Return the recipe of one way, with the model that both begin with."""
    warm = {"seconds": plan.seconds, "optimizer": "muon", "lr": 1.5e-3, "sequences": 8, "epochs": 100, "observed": 0.3}
    above = {
        "seed": SEED, "steps": plan.updates, "checkpoint_every": plan.updates,
        "begin": {
            "model": str(folder / "drawn"), "tasks": plan.tasks, "longest": 4096,
            "warm_start": {**warm, "micro_tokens": 16384, "precision": "bfloat16"},
        },
        "engine": {"answer_tokens": 128},
    }  # fmt: skip
    return recipe.load("one-gpu", merge(merge(above, WAYS[way]), plan.above))


def trained(made: Recipe, folder: Path, base: Path, say: Quiet) -> list[dict[str, Any]]:
    """Train and return the updates."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    asyncio.run(run.trained(made, folder, base, {}, say, resume=False))
    return measure.updates(folder)[0]


def operations(size: Size, read: float, trained: float, length: float) -> float:
    """Return the FLOPs of an update: two passes forward, and one backward.

    Args:
        size: of the model.
        read: tokens that were passed through.
        trained: tokens of which the head was asked.
        length: of an attempt, in tokens: each sees half of it on average.
    """
    head = size.vocabulary * size.hidden
    body = size.parameters - head * (1 if size.tied else 2)
    attention = size.layers * size.heads * size.head_size * length
    return PASSES * 2 * ((body + attention) * read + head * trained)


def line(way: str, updates: Sequence[Mapping[str, Any]], size: Size, teraflops: float) -> dict[str, Any]:
    """Return what the counted updates of a run were like."""
    counted = updates[COUNTED_FROM - 1 :]
    seconds = counted[-1]["seconds"] - updates[COUNTED_FROM - 2]["seconds"]

    def total(name: str) -> float:
        return float(sum(each.get(name, 0) for each in counted))

    learning, publishing = total("update/learning_seconds"), total("update/publishing_seconds")
    read, taught = total("tokens/read"), total("tokens/trained")
    attempts = total("attempts")
    done = operations(size, read, taught, read / max(attempts, 1))
    return {
        "way": way,
        "updates": len(counted),
        "seconds": seconds / len(counted),
        "learning": learning / len(counted),
        "publishing": publishing / len(counted),
        "generated_per_second": total("tokens/generated") / seconds,
        "trained_per_second": taught / seconds,
        "read_per_learning_second": read / max(learning, 1e-9),
        "filled": read / max(total("tokens/computed"), 1),
        "learner_mfu": done / max(learning, 1e-9) / (teraflops * 1e12),
        "mfu": done / seconds / (teraflops * 1e12),
        "idle_learner": total("idle/learner") / len(counted),
        "idle_engine": total("idle/engine") / len(counted),
        "gpu_bytes": max(each.get("memory/gpu_bytes", 0) for each in updates),
        "memory_bytes": max(each["memory/peak_bytes"] for each in updates),
        "reward_first": updates[0]["reward/mean"],
        "reward_last": updates[-1]["reward/mean"],
        "attempts": attempts / len(counted),
        "ess": total("ess") / len(counted),
    }


def sampling(folder: Path, rows: int, *, recorded: bool) -> dict[str, Any]:
    """Return the milliseconds of a token of so many turns at once, each behind 800 to 900 others."""
    import torch

    from harness.models.hf import batch, engine

    model = engine.load(folder, LocalOptions(device="cuda", dtype="bfloat16"))
    with engine.own_stream(model):
        turns = batch.Batch(model, rows, 0)
        if not recorded:
            turns._graphs = None
        for place in range(rows):
            ids = tuple(random.Random(place).randrange(1000) for _ in range(PROMPT))
            turns.join(Request(episode=str(place), prompt_ids=ids, max_tokens=1000, temperature=1.0, seed=place))
        for _ in range(UNCOUNTED):
            turns.step()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(COUNTED):
            turns.step()
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - begun) / COUNTED
    return {"turns": rows, "recorded": recorded, "milliseconds": 1000 * seconds, "tokens_per_second": rows / seconds}


def learning(folder: Path, made: Recipe, teraflops: float) -> dict[str, Any]:
    """Return how fast the learner passes a micro-batch forward and backward, every seventh token of it trained on."""
    import torch

    from benchmarks import passes
    from training import learner

    backend = learner.make("torch", folder, made.learner).backend
    taken = []
    for less in range(4):  # no two micro-batches of a run have the same shape
        rows = passes.rows(0.0, made.learner.micro_tokens // LENGTH, LENGTH - 8 * less)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        backend.backward(backend.logprobs(rows).sum(), last=True)
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - begun) / rows.size)
    each = statistics.median(taken[1:])
    done = operations(budget.size_of(made), 1, float(rows.trained.mean()), LENGTH) * 3 / PASSES
    return {
        "tokens": made.learner.micro_tokens,
        "tokens_per_second": 1 / each,
        "mfu": done / each / (teraflops * 1e12),
        "gpu_bytes": torch.cuda.max_memory_allocated(),
    }


def measured(folder: Path, plan: Plan, ways: Sequence[str]) -> dict[str, Any]:
    """Measure the parts alone, then the ways, and return what was found."""
    import torch

    say, found = Quiet(), []
    teraflops = peak_of(card())
    source = drawn(folder, plan)
    first = wanted(folder, plan, ways[0])
    alone = [sampling(source, rows, recorded=recorded) for rows in (128, 256) for recorded in (True, False)]
    learnt = learning(source, first, teraflops)
    torch.cuda.empty_cache()  # else this process keeps what the run's own need
    say.say(json.dumps([alone, learnt]))
    base, begun = folder / "base", time.monotonic()
    begin(first, base, say.say)
    beginning = time.monotonic() - begun
    for way in ways:
        made = trained(wanted(folder, plan, way), folder / way.partition(",")[0], base, say)
        found.append(line(way, made, budget.size_of(first), teraflops))
        say.say(json.dumps(found[-1]))
    return {
        "card": card(),
        "peak_teraflops": teraflops,
        "begin_seconds": beginning,
        "sampling": alone,
        "passes": learnt,
        "ways": found,
    }


def card() -> str:
    """Return the name of the GPU. SetupError where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise SetupError("benchmarks one_gpu --measure needs a GPU that torch sees, and there is none here")
    return str(torch.cuda.get_device_name())


def peak_of(name: str) -> float:
    """Return a card's peak in 10^12 operations a second. SetupError where it is not known."""
    known = next((value for part, value in PEAK_TERAFLOPS.items() if part in name), None)
    if known is None:
        raise SetupError(f"the peak of '{name}' is not known: add it to PEAK_TERAFLOPS in {__file__}")
    return known


@click.command()
@click.option("--measure", "measuring", is_flag=True, required=True, help="Measure, and keep what was found.")
@click.option("--tasks", default=400, show_default=True, help="Of each environment, whose gold play is learnt.")
@click.option("--seconds", default=70.0, show_default=True, help="Of supervised learning.")
@click.option("--updates", default=8, show_default=True, help="Of each way.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER, show_default=True, help="Of the runs.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS, show_default=True, help="What was found.")
def program(measuring: bool, tasks: int, seconds: float, updates: int, folder: Path, out: Path) -> int:
    """Measure on this machine's GPU."""
    found = measured(folder, Plan(tasks, seconds, updates), list(WAYS))
    out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def command(words: Sequence[str]) -> int:
    """Do what the words after `python -m benchmarks one_gpu` say; return the exit code."""
    from harness.cli import run as begun

    return begun(program, words, "python -m benchmarks one_gpu")


def main() -> None:
    """Print what was found. SetupError where nothing was."""
    if not RESULTS.is_file():
        raise SetupError("no machine with a GPU has run `python -m benchmarks one_gpu --measure` to its end yet")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    print(f"On {found['card']}; its peak is taken for {found['peak_teraflops']:g} TFLOP/s.\n")
    print("| turns sampled at once | passes | ms a token of each | tokens/s |\n|---|---|---|---|")
    for each in found["sampling"]:
        how = "recorded" if each["recorded"] else "not recorded"
        print(f"| {each['turns']} | {how} | {each['milliseconds']:.1f} | {each['tokens_per_second']:,.0f} |")
    one = found["passes"]
    print(
        f"\nThe learner alone, forward and backward of {one['tokens']:,} tokens: {one['tokens_per_second']:,.0f} "
        f"tokens/s, {100 * one['mfu']:.0f} % of the peak, {one['gpu_bytes'] / 2**30:.1f} GiB.\n"
    )
    print(
        "| | s an update | of it learning | publishing | generated tokens/s | trained | % of the peak, all of it "
        "| learning | learner idle | GPU, GiB |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for way in found["ways"]:
        print(
            f"| {way['way']} | {way['seconds']:.1f} | {way['learning']:.1f} | {way['publishing']:.1f} "
            f"| {way['generated_per_second']:,.0f} | {way['trained_per_second']:,.0f} | {100 * way['mfu']:.1f} "
            f"| {100 * way['learner_mfu']:.1f} | {100 * way['idle_learner']:.0f} % | {way['gpu_bytes'] / 2**30:.1f} |"
        )


if __name__ == "__main__":
    main()
