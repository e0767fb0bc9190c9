"""The learner, as the loop sees it: calls that are awaited, wherever its ranks compute.

Decided here: each rank is an object of its own, in a process of its own where the recipe has processes, and all of
them are called alike with the whole batch; what rank 0 answers is the answer. A rank that dies is told before what its
death did to the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from harness.errors import HarnessError, SetupError
from training import machine
from training.learner.options import LearnerOptions
from training.process.options import ProcessOptions
from training.process.parent import Caller, Here, Hold, Lost, Process
from training.values import Metrics, Sample
from training.watch import Watch

OTHERS_SECONDS = 5.0
"""What the other ranks have to fail in, once one did."""
LOCK_SECONDS = 900.0
"""A lock that is older is nobody's: nothing that DeepSpeed compiles takes so long."""
HALVES = ("bfloat16", "float16")
"""What an engine may hold numbers as, in 16 bits."""
COLLECTIVE_SECONDS = 1800.0
"""Deadline of ranks waiting for one another."""


class Learner(Protocol):
    """What the loop asks of a learner."""

    async def update(self, samples: Sequence[Sample], version: int, gold: Sequence[Sample] = ()) -> Metrics:
        """Train on one batch, and on gold play beside it. SetupError where its loss is no finite number."""
        ...

    async def publish(self, root: Path, version: int) -> Path:
        """Write the weights as a snapshot under `root`; return its folder. StorageError where the disk is full."""
        ...

    async def save(self, folder: Path) -> None:
        """Write all that the next update depends on into an existing folder."""
        ...

    async def load(self, folder: Path) -> None:
        """Go on from what was saved."""
        ...

    async def gone(self) -> HarnessError:
        """Wait until it is lost, and return why."""
        ...

    async def close(self) -> None:
        """End it."""
        ...


class Rank:
    """One rank of a learner, in the process that computes it. All ranks must be asked alike."""

    def __init__(
        self, backend: str, base: Path, options: LearnerOptions, threads: int | None, meet: str | None, served: str
    ) -> None:
        """Load the model. SetupError: a package is missing, or it cannot be loaded.

        Args:
            backend: `torch` or `deepspeed`.
            base: folder of the model that training began with.
            options: how a batch changes the weights.
            threads: of torch; None is its own choice.
            meet: where the ranks meet, as torch.distributed has it; None for a learner that is alone.
            served: how engines hold numbers, see `publish`.
        """
        import torch

        from training import learner

        if threads is not None:
            torch.set_num_threads(threads)
        if meet is not None:
            cuda = torch.cuda.is_available() and options.device != "cpu"
            os.environ.setdefault("DS_ACCELERATOR", "cuda" if cuda else "cpu")
            torch.distributed.init_process_group(
                "nccl" if cuda else "gloo", init_method=meet, rank=int(os.environ["RANK"]),
                world_size=int(os.environ["WORLD_SIZE"]), timeout=timedelta(seconds=COLLECTIVE_SECONDS),
            )  # fmt: skip
        if backend == "deepspeed":
            _forget_locks()
        self._base, self._served = base, served
        self._learner = learner.make(backend, base, options)

    def update(self, samples: Sequence[Sample], version: int, gold: Sequence[Sample] = ()) -> Metrics:
        """Train on one batch, and on gold play beside it."""
        import torch

        try:
            metrics = self._learner.update(samples, version, gold)
        except torch.OutOfMemoryError as error:
            raise SetupError(
                f"an update found no room ({str(error).splitlines()[0]}): go on with a lower learner.micro_tokens, or "
                "with learner.checkpointing"
            ) from error
        taken = machine.taken_gpu()
        return metrics if taken is None else metrics | {"memory/gpu_bytes": taken}

    def publish(self, root: Path, version: int) -> Path | None:
        """Write the weights as a snapshot, in 16 bits where they are served in 16; only rank 0 writes."""
        import torch

        from harness.models import proof
        from training import weights

        own, network = self._learner.weights(), self._learner.backend.network
        if self._served in HALVES:
            own = {name: tensor.to(getattr(torch, self._served)) for name, tensor in own.items()}
        if self._learner.backend.rank == 0:
            return weights.publish(root, version, weights.model_writer(own, network, self._base))[0]
        proof.measure(network, proof.text(network.config.vocab_size))  # its part where the weights are spread
        return None

    def save(self, folder: Path) -> None:
        """Write all that the next update depends on."""
        self._learner.save(folder)

    def load(self, folder: Path) -> None:
        """Go on from what was saved."""
        self._learner.load(folder)


class Ranks:
    """The ranks of a learner as one."""

    def __init__(self, callers: Sequence[Caller], options: ProcessOptions) -> None:
        self.callers = tuple(callers)
        self._options = options

    async def update(self, samples: Sequence[Sample], version: int, gold: Sequence[Sample] = ()) -> Metrics:
        """Train on one batch, and on gold play beside it. SetupError where its loss is no finite number."""
        found: Metrics = await self._call("update", samples, version, gold)
        return found

    async def publish(self, root: Path, version: int) -> Path:
        """Write the weights as a snapshot under `root`; return its folder. StorageError where the disk is full."""
        folder: Path = await self._call("publish", root, version)
        return folder

    async def save(self, folder: Path) -> None:
        """Write all that the next update depends on into an existing folder."""
        await self._call("save", folder)

    async def load(self, folder: Path) -> None:
        """Go on from what was saved. SetupError where it is another model's, or cannot be read."""
        await self._call("load", folder)

    async def gone(self) -> HarnessError:
        """Wait until a rank is lost, and return why."""
        waiting = [asyncio.ensure_future(caller.gone()) for caller in self.callers]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in waiting:
                task.cancel()

    async def close(self) -> None:
        """End all ranks."""
        await asyncio.gather(*(caller.close() for caller in self.callers), return_exceptions=True)

    async def _call(self, method: str, *arguments: Any) -> Any:
        seconds = self._options.call_seconds
        calls = [asyncio.ensure_future(each.call(method, *arguments, seconds=seconds)) for each in self.callers]
        try:
            done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            if waiting:  # one failed, and may have failed for another's sake
                done |= (await asyncio.wait(waiting, timeout=OTHERS_SECONDS))[0]
        finally:
            for call in calls:
                call.cancel()
        if errors := [error for call in done if (error := call.exception()) is not None]:
            raise min(errors, key=lambda error: not isinstance(error, Lost))
        return calls[0].result()


async def start(
    backend: str,
    base: Path,
    options: LearnerOptions,
    processes: ProcessOptions,
    *,
    ranks: int,
    folder: Path,
    watch: Watch,
    hold: Hold = Process,
    served: str = "auto",
) -> Learner:
    """Start a learner on the model in a folder.

    Args:
        backend: `torch` or `deepspeed`.
        base: folder of the model that training began with.
        options: how a batch changes the weights.
        processes: whether it has processes of its own, and their threads and deadlines.
        ranks: over how many processes it is spread.
        folder: of the run, where the processes' output goes.
        watch: whose deadlines hold.
        hold: what holds a rank where it has a process of its own.
        served: how engines hold numbers, as `LocalOptions.dtype` says.

    Raises:
        SetupError: a package is missing, it cannot be loaded, or several ranks were asked to share one process.
    """
    threads = threads_of(processes.learner_threads, options)
    if not processes.learner:
        if ranks > 1 or backend == "deepspeed":
            raise SetupError("the deepspeed learner and several ranks need processes: set processes.learner to true")
        held = await asyncio.to_thread(Rank, backend, base, options, threads, None, served)
        return Ranks([Here("the learner", held, watch)], processes)
    meeting = folder / "processes" / "meet"
    meeting.parent.mkdir(parents=True, exist_ok=True)
    meeting.unlink(missing_ok=True)
    meet = f"file://{meeting.resolve()}" if ranks > 1 or backend == "deepspeed" else None  # torch takes it as it stands
    make = functools.partial(Rank, backend, base, options, threads, meet, served)
    callers = [
        hold(
            "the learner" if ranks == 1 else f"the learner's rank {rank}",
            make,
            folder / "processes" / f"learner-{rank}.log",
            watch,
            processes,
            {**surroundings(threads), **(of_rank(rank, ranks) if meet else {})},
        )
        for rank in range(ranks)
    ]
    starting = [asyncio.ensure_future(caller.start()) for caller in callers]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, *(caller.close() for caller in callers), return_exceptions=True)
        raise
    return Ranks(callers, processes)


def _forget_locks() -> None:
    """Remove what a process that was killed while DeepSpeed compiled has left: all later ones would wait for it."""
    from torch.utils.cpp_extension import get_default_build_root

    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    for lock in root.rglob("lock"):
        with contextlib.suppress(OSError):  # another rank was faster
            if time.time() - lock.stat().st_mtime > LOCK_SECONDS:
                lock.unlink()


def threads_of(wanted: int | None, options: LearnerOptions) -> int | None:
    """Return the number of torch's threads; one where the same batch must give the same bits."""
    return 1 if options.deterministic else wanted


def of_rank(rank: int, ranks: int) -> dict[str, str]:
    """Return what a rank's environment says of it."""
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}


def surroundings(threads: int | None) -> dict[str, str]:
    """Return what a child's environment says of threads."""
    return {} if threads is None else {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
