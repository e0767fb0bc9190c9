"""Servers of ours, in the shape of a stand-in: shared, and ended with their last user, however that went."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from harness.config import LocalOptions, ModelOptions
from harness.errors import ModelError, SetupError
from harness.models import connect, providers
from harness.models.sampler import Request
from harness.models.vllm import launch, server
from harness.models.vllm.engine import VllmSampler
from tests.models import fake_vllm
from tests.models.fake_vllm import write_model

OPTIONS = LocalOptions(dtype="float32")
ASKED = Request(episode="e", prompt_ids=(2, 3, 4), max_tokens=5)
RUN = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from tests.models.test_vllm_server import ASKED, make

    async def main():
        sampler = make(Path(sys.argv[1]))
        await sampler.open()
        await sampler.sample(ASKED)
        print("sampled", flush=True)
        await asyncio.sleep(600)

    asyncio.run(main())
    """
)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, whose path a socket's name fits, and a Python that is the stand-in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("c")))
    monkeypatch.setenv(launch.PYTHON, str(fake_vllm.python(tmp_path)))


def make(folder: Path, **options: Any) -> VllmSampler:
    local = LocalOptions(dtype="float32", **options)
    return VllmSampler(folder, local, launch.runtime("vllm/x"), (), 30.0)


def servers(folder: Path) -> list[int]:
    """Return the processes of the servers that were started for a model, and still run."""
    try:
        started = folder.with_suffix(".started").read_text().split()
    except FileNotFoundError:
        return []
    return [int(each) for each in started if alive(int(each))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(what: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def leftovers() -> list[str]:
    return [path.name for path in server.root().iterdir() if path.is_dir()]


async def test_samplers_with_the_same_model_and_flags_share_a_server_that_ends_with_the_last(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", 5)
    one, two, other = make(folder), make(folder), make(folder, context=256)
    await asyncio.gather(one.open(), two.open(), other.open())
    try:
        assert len(servers(folder)) == 2
        assert (await one.sample(ASKED)).ids == (await two.sample(ASKED)).ids
        await one.close()
        await other.close()
        await until(lambda: len(servers(folder)) == 1)
        await two.sample(ASKED)
    finally:
        for sampler in (one, two, other):
            await sampler.close()
    await until(lambda: not servers(folder) and not leftovers())


async def test_the_server_ends_when_its_users_are_killed(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", 5, child=True)
    command = [sys.executable, "-c", RUN, str(folder)]
    root = Path(__file__).parents[2]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(2)]
    try:
        for run in runs:
            assert run.stdout
            assert await asyncio.to_thread(run.stdout.readline) == "sampled\n"
        (pid,) = servers(folder)
        children = descendants(pid)
        assert children
        runs[0].kill()
        await asyncio.sleep(1.5)
        assert servers(folder) == [pid]
        runs[1].kill()
        await until(lambda: not servers(folder) and not leftovers())
        assert not [each for each in children if alive(each)]
    finally:
        for run in runs:
            run.kill()
            run.wait()
            assert run.stdout
            run.stdout.close()


def descendants(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_server_whose_keeper_is_killed_ends_too_and_another_can_be_started(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", 5)
    sampler = make(folder)
    await sampler.open()
    (pid,) = servers(folder)
    keeper = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert keeper not in descendants(os.getpid()), "what ends our children does not end it"
    os.kill(keeper, signal.SIGKILL)
    await until(lambda: not servers(folder))
    with pytest.raises(ModelError, match="the server ended: its keeper was killed"):
        await sampler.sample(ASKED)
    await sampler.close()
    again = make(folder)
    await again.open()
    try:
        assert len((await again.sample(ASKED)).ids) == 5
    finally:
        await again.close()
    await until(lambda: not servers(folder))


async def test_a_server_that_is_killed_in_a_run_is_one_sentence(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", 5, token_seconds=0.05)
    sampler = make(folder)
    await sampler.open()
    try:
        turn = asyncio.create_task(sampler.sample(Request(episode="e", prompt_ids=(2, 3), max_tokens=200)))
        await asyncio.sleep(0.3)
        os.kill(servers(folder)[0], signal.SIGKILL)
        with pytest.raises(ModelError, match=r"^vllm:0: the server ended: it was killed by signal 9 \(its log: .*\)$"):
            await turn
    finally:
        await sampler.close()


async def test_a_server_that_fails_in_a_run_is_one_sentence_with_its_last_words(tmp_path: Path) -> None:
    words = (
        "(EngineCore pid=7) ERROR 01-01 00:00:00 [core.py:1] torch.OutOfMemoryError: no memory left\n"
        "(APIServer pid=6) ERROR 01-01 00:00:00 [x.py:1] vllm.v1.EngineDeadError: see the trace above"
    )
    folder = write_model(tmp_path / "model", 5, dies=words)
    sampler = make(folder)
    await sampler.open()
    (log,) = server.root().glob("*/log")
    try:
        with pytest.raises(ModelError) as caught:
            await sampler.sample(ASKED)
    finally:
        await sampler.close()
    assert str(caught.value) == (
        "vllm:0: the server ended: torch.OutOfMemoryError: no memory left; lower context or batch, of "
        "connection.local or of a recipe's engine "
        f"(its log: {log})"
    )


async def test_a_server_that_does_not_start_says_why_in_one_sentence_to_all_who_wait(tmp_path: Path) -> None:
    words = "ValueError: the model is made of cheese\nRuntimeError: Engine core initialization failed. See above."
    folder = write_model(tmp_path / "model", 5, last_words=words)
    found = await asyncio.gather(make(folder).open(), make(folder).open(), return_exceptions=True)
    for error in found:
        assert isinstance(error, SetupError)
        assert str(error).startswith(
            f"vLLM does not serve the model in {folder}: ValueError: the model is made of cheese (its log: "
        )
    (folder / "behaviour.json").write_text("{}")
    sampler = make(folder)
    await sampler.open()
    await sampler.close()


async def test_a_server_with_new_weights_is_its_users_own(tmp_path: Path) -> None:
    folder, new = write_model(tmp_path / "model", 5), write_model(tmp_path / "new", 9)
    trainer, reader = make(folder), make(folder)
    await trainer.open()
    await reader.open()
    try:
        with pytest.raises(ModelError, match="other runs share this server"):
            await trainer.update(str(new), 1)
        await reader.close()
        await trainer.update(str(new), 1)
        late = make(folder)
        await late.open()
        try:
            assert len(servers(folder)) == 2
            assert (await late.sample(ASKED)).ids != (await trainer.sample(ASKED)).ids
        finally:
            await late.close()
        await trainer.update(str(folder), 2)
    finally:
        await trainer.close()
    await until(lambda: not servers(folder) and not leftovers())


async def test_what_is_to_be_ones_own_is_shared_with_nobody_and_nobodys_is_waited_for(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", 5)
    shared, own = make(folder), VllmSampler(folder, OPTIONS, launch.runtime("vllm/x"), (), 30.0, own=True)
    await shared.open()
    await own.open()
    try:
        first, second = servers(folder)
        late = make(folder)
        await late.open()
        assert servers(folder) == [first, second], "who comes later joins the first"
        await late.close()
    finally:
        await own.close()
        await own.open()
        assert not alive(second), "it was gone before another was started"
        await own.close()
        await shared.close()
    await until(lambda: not servers(folder) and not leftovers())


async def test_servers_of_one_gpu_start_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    folder = write_model(tmp_path / "model", 5)
    sampler = VllmSampler(folder, OPTIONS, launch.runtime("vllm/x")._replace(cpu=False), (), 30.0)
    async with server.alone("6", 1.0):
        opening = asyncio.create_task(sampler.open())
        await asyncio.sleep(0.5)
        assert not servers(folder)
    await opening
    await sampler.close()
    await until(lambda: not servers(folder))


async def test_replicas_are_servers_of_their_own_and_shared_in_order(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", 5)
    one, two = make(folder, replicas=2), make(folder, replicas=2)
    await asyncio.gather(one.open(), two.open())
    try:
        assert len(servers(folder)) == 2
        engines = {(await one.sample(Request(episode=f"{n}", prompt_ids=(2,), max_tokens=2))).engine for n in range(4)}
        assert engines == {"vllm:0", "vllm:1"}
    finally:
        await one.close()
        await two.close()
    await until(lambda: not servers(folder))


async def test_a_path_too_long_for_a_socket_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ("long" * 25)))
    with pytest.raises(SetupError, match="set XDG_CACHE_HOME to a shorter folder"):
        await make(write_model(tmp_path / "model", 5)).open()


def test_what_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in (("/nowhere/python", "no Python that runs"), (str(tmp_path / "none"), "has no vLLM")):
        (tmp_path / "none").write_text("#!/bin/sh\necho null\n")
        (tmp_path / "none").chmod(0o755)
        monkeypatch.setenv(launch.PYTHON, name)
        with pytest.raises(SetupError, match=words):
            launch.runtime("vllm/x")
    monkeypatch.delenv(launch.PYTHON)
    monkeypatch.setattr(launch, "here", lambda: None)
    with pytest.raises(SetupError, match="vllm/x needs vLLM: pip install vllm"):
        connect("vllm/x", ModelOptions())
    (row,) = [row for row in providers() if row.name == "vllm"]
    assert not row.ready
    assert "pip install vllm" in row.note


def test_flags_make_what_is_sampled_what_was_asked_for(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", 5)
    runtime = launch.Runtime("/bin/python", "0.32.0", cpu=False)
    command = launch.command(runtime, folder, LocalOptions(context=2048, batch=7))
    for flag, value in (
        ("--logprobs-mode", "processed_logprobs"),
        ("--generation-config", "vllm"),
        ("--max-model-len", "2048"),
        ("--max-num-seqs", "7"),
        ("--dtype", "float32"),  # what the model's own configuration names
    ):
        assert command[command.index(flag) + 1] == value
    assert {"--enable-prefix-caching", "--enable-prompt-tokens-details"} < set(command)
    assert "--enforce-eager" not in command
    assert command[command.index("--gpu-memory-utilization") + 1] == "0.9"
    half = launch.command(runtime, folder, launch.shared(LocalOptions(memory=0.6), 2, cpu=False))
    assert half[half.index("--gpu-memory-utilization") + 1] == "0.3", "two servers on one GPU share what one may take"
    (folder / "config.json").write_text('{"text_config": {"max_position_embeddings": 40960}}')
    on_cpu = launch.command(runtime._replace(cpu=True), folder, OPTIONS)
    assert {"--enforce-eager", "--no-enable-chunked-prefill"} < set(on_cpu)
    assert on_cpu[on_cpu.index("--max-num-batched-tokens") + 1] == "40960"


def test_a_python_of_its_own_gets_none_of_our_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    here, elsewhere = (launch.Runtime(python, "0.32.0", cpu=True) for python in (sys.executable, "/bin/python"))
    assert launch.environment(here, LocalOptions(), 0)["PYTHONPATH"] == "/ours"
    assert "PYTHONPATH" not in launch.environment(elsewhere, LocalOptions(), 0)


def test_a_number_of_threads_holds_for_servers_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = launch.Runtime("/bin/python", "0.32.0", cpu=True)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert "VLLM_CPU_OMP_THREADS_BIND" not in launch.environment(runtime, LocalOptions(), 0)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert launch.environment(runtime, LocalOptions(), 0)["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_each_replica_has_a_gpu_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    runtime = launch.Runtime("/bin/python", "0.32.0", cpu=False)
    two = LocalOptions(replicas=2)
    shown = [launch.environment(runtime, two, place)["CUDA_VISIBLE_DEVICES"] for place in range(2)]
    assert shown == ["4", "6"]
    assert launch.environment(runtime, LocalOptions(device="cuda:1"), 0)["CUDA_VISIBLE_DEVICES"] == "1"
    assert launch.environment(runtime, LocalOptions(), 0)["CUDA_VISIBLE_DEVICES"] == "4,6"
    with pytest.raises(SetupError, match="replicas is 3, and there are 2 GPUs"):
        launch.environment(runtime, LocalOptions(replicas=3), 0)
    with pytest.raises(SetupError, match="computes on GPUs"):
        launch.environment(runtime, LocalOptions(device="cpu"), 0)


def test_servers_are_the_same_only_where_model_flags_and_files_are(tmp_path: Path) -> None:
    folder, runtime = write_model(tmp_path / "model", 5), launch.Runtime("/bin/python", "0.32.0", cpu=True)
    name = launch.server_name(runtime, folder, OPTIONS)
    assert name == launch.server_name(runtime, folder, OPTIONS)
    assert name != launch.server_name(runtime, folder, LocalOptions(dtype="bfloat16"))
    write_model(folder, 9)
    assert name != launch.server_name(runtime, folder, OPTIONS)
