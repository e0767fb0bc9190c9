"""What this machine has for a run, and what a run takes of it: memory of the processor and of GPUs, and disk.

Read from the kernel; where it does not say (another system), it is None, and nothing is refused for it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

PATIENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
"""Environment of a process that shares its cores: threads that spin take them from others."""
SPINS = "20000"
PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
LIMITS = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""Controller of a control group, version 2 and 1, to its files: the limit, and what is used."""


def spin() -> None:
    """Let torch's threads spin for a moment before they sleep; before torch is imported, where nothing else computes.

    A small model has many short parallel parts: supervised learning of 1.4 million weights on two quiet cores, with
    tcmalloc, read 11,600 tokens a second so and 8,500 without spinning.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def cores() -> int:
    """Return how many cores this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int | None:
    """Return the bytes of memory that a new process may take: what the machine and its control group leave."""
    found = [_field(PROC / "meminfo", "MemAvailable:", 1024), *map(_left, _groups())]
    known = [each for each in found if each is not None]
    return min(known) if known else None


def free_disk(folder: Path) -> int | None:
    """Return the bytes that are free where a folder is, or will be."""
    place = next((each for each in (folder, *folder.absolute().parents) if each.exists()), None)
    try:
        return shutil.disk_usage(place).free if place else None
    except OSError:
        return None


def free_gpu(device: str) -> int | None:
    """Return the bytes that are free on a GPU, as torch names it; None where it has none of that name."""
    return found[0] if (found := _gpu(device)) else None


def whole_gpu(device: str) -> int | None:
    """Return all the bytes of a GPU, free or not."""
    return found[1] if (found := _gpu(device)) else None


def _gpu(device: str) -> tuple[int, int] | None:
    if not find_spec("torch"):
        return None
    import torch

    try:
        free, whole = torch.cuda.mem_get_info(torch.device(device))
    except (RuntimeError, ValueError, AssertionError):
        return None
    return int(free), int(whole)


def default_device() -> str:
    """Return the device that is taken where none is named."""
    if not find_spec("torch"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def has_device(device: str) -> bool:
    """Return whether torch has a device of that name here; where there is no torch, a CPU is all there is."""
    if device.startswith("cuda"):
        return free_gpu(device) is not None
    if not find_spec("torch"):
        return device == "cpu"
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        return False
    return True


def has_bfloat16(device: str) -> bool:
    """Return whether a device, as torch names it, computes in bfloat16.

    A CPU without instructions for it (AVX2) takes 30 to 60 times as long as in float32 for a product of matrices, with
    torch 2.13.
    """
    if not find_spec("torch"):
        return True
    import torch

    return device.partition(":")[0] != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def peak_bytes() -> int | None:
    """Return the most memory that this process and those it has started took, each at its own time."""
    peaks = [_peak(process) for process in [os.getpid(), *_descendants(os.getpid())]]
    known = [each for each in peaks if each is not None]
    return sum(known) if known else None


def taken_gpu() -> int | None:
    """Return the bytes that all processes took of the GPU that this one computes on; None where it computes on none.

    What torch took it keeps, so after an update this is the most so far, but for what another has put away since.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    free, whole = torch.cuda.mem_get_info()
    return int(whole - free)


def _groups() -> list[tuple[Path, str, str]]:
    """Return the control groups that this process is in, the outer ones too, with the names of their files."""
    found = []
    try:
        lines = (PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    for _, controllers, inside in (line.split(":", 2) for line in lines):
        for controller, names in LIMITS.items():
            if controller in controllers.split(","):
                place = GROUPS / controller / inside.lstrip("/")
                found += [(each, *names) for each in (place, *place.parents) if each.is_relative_to(GROUPS)]
    return found


def _left(group: tuple[Path, str, str]) -> int | None:
    """Return what a control group leaves; its cache can be dropped, so it counts as free."""
    folder, limit, used = group
    try:
        most, now = (int((folder / name).read_text()) for name in (limit, used))
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return most - now + (_field(folder / "memory.stat", "inactive_file", 1) or 0)


def _peak(process: int) -> int | None:
    return _field(PROC / str(process) / "status", "VmHWM:", 1024)


def _field(path: Path, name: str, unit: int) -> int | None:
    try:
        lines = path.read_text().splitlines()
        return next(int(line.split()[1]) * unit for line in lines if line.split()[:1] == [name])
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _descendants(process: int) -> list[int]:
    """Return the processes under one, as far as the kernel tells."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in PROC.glob("[0-9]*/stat"):
        try:
            behind_name = path.read_text().rpartition(")")[2].split()  # a name may have spaces and brackets
            children[int(behind_name[1])].append(int(path.parent.name))
        except (OSError, ValueError, IndexError):  # it has ended
            continue
    found, waiting = [], [process]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += below
        waiting += below
    return found
