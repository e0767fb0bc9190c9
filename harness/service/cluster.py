"""Workers as actors of a Ray cluster: where they are placed, and that nothing of them outlives `harness serve`.

Decided here: an actor is the `Process` of a worker on some node, so what it runs is `harness worker` as it is anywhere,
and `Supervisor` starts another one where an actor or its node died. Ray ends the actors of a program that is gone, and
a worker ends with its actor. A worker listens on its node's address, or on loopback where the controller does; the
token goes to it as an argument of a call, since Ray shows an actor's environment to whoever may look at the cluster.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Any

from harness.errors import SetupError
from harness.service.owned import end_with
from harness.service.supervise import UNAVAILABLE, Process

NAMESPACE = "harness"
REACH_SECONDS = 5.0
CONNECT_SECONDS = 60.0
ROOM_SECONDS = 10.0
"""After which it is said that a worker waits for room on the cluster."""


class HarnessWorker(Process):
    """What an actor is; Ray shows it under this name."""

    def __init__(self) -> None:
        super().__init__()
        end_with(os.getppid(), lambda: os._exit(1))  # Ray leaves it where all of Ray died, its node's part included

    async def address(self) -> str:
        """Return the address of the node."""
        import ray

        return str(ray.util.get_node_ip_address())


class Actor:
    """A worker on whichever node has room for it: a `Place`, as `Process` is."""

    def __init__(self, cpus: float, reach: Callable[[str], object] | None) -> None:
        """Describe an actor that takes so many CPUs; `live` has it placed.

        Args:
            cpus: what it takes of its node.
            reach: told the node's address before the worker registers; None where only this machine reaches the
                controller.
        """
        self._cpus = cpus
        self._reach = reach
        self._actor: Any = None
        self._begun = False
        self._unwanted = False

    async def live(self, arguments: Sequence[str], tokens: Mapping[str, str]) -> AsyncIterator[str | int]:
        """Have an actor placed and run `harness worker` in it; yield what that says, and then its exit code."""
        import ray

        what = ray.remote(HarnessWorker).options(num_cpus=self._cpus, max_restarts=0, scheduling_strategy="SPREAD")
        self._actor = what.remote()
        node = "no node yet"
        try:
            placing = asyncio.wrap_future(self._actor.address.remote().future())
            if not (await asyncio.wait([placing], timeout=ROOM_SECONDS))[0]:
                yield f"a worker waits for a node with {self._cpus:g} CPUs to spare: {' '.join(arguments)}"
            node = await placing
            if self._reach is None and not _is_here(node):
                yield f"node {node} does not reach a controller on loopback: give --host an address that it reaches"
                yield UNAVAILABLE
                return
            if self._reach is not None:
                self._reach(node)
                arguments = [*arguments, "--host", node]
            self._begun = not self._unwanted
            async for said in self._actor.live.remote(arguments, tokens):
                yield await said
        except ray.exceptions.RayError as error:
            if not self._unwanted:
                reason = " ".join(str(error).split()).partition(". ")[0][:300] or type(error).__name__
                yield f"the actor of a worker on {node} is lost: {reason}"
            yield -signal.SIGKILL
        finally:
            self._end()

    async def signal(self, which: int) -> None:
        """Send the worker a signal; one that is not there yet is not to come."""
        self._unwanted = True
        if self._begun and which != signal.SIGKILL:
            self._actor.signal.remote(which)
        else:
            self._end()

    def _end(self) -> None:
        import ray

        if self._actor is not None:
            with suppress(Exception):  # it is gone, or the cluster is
                ray.kill(self._actor)


def _is_here(address: str) -> bool:
    """Whether an address is this machine's own."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as tried:
        try:
            tried.bind((address, 0))
        except OSError:
            return False
    return True


@asynccontextmanager
async def joined(address: str, seconds: float = CONNECT_SECONDS) -> AsyncIterator[str]:
    """Be part of a cluster while the block runs; give the address that this machine has in it.

    Raises:
        SetupError: Ray is missing, or there is no cluster at the address.
    """
    if find_spec("ray") is None:
        raise SetupError("a cluster needs the package 'ray': pip install 'agent-harness[cluster]'")
    if address != "auto" and (trouble := await _unreachable(address)):
        raise SetupError(f"there is no Ray cluster at '{address}' ({trouble}): ray start --head starts one")
    import ray

    ours = not ray.is_initialized()
    if ours:
        await _connect(address, seconds)
    try:
        yield str(ray.util.get_node_ip_address())
    finally:
        if ours:
            await asyncio.to_thread(ray.shutdown)


async def _unreachable(address: str) -> str:
    """Return why nothing can be asked at an address, "" where something answers: Ray itself would try for long."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return "an address is HOST:PORT, or auto for the cluster that this machine belongs to"
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, OverflowError, UnicodeError) as error:  # TimeoutError is an OSError
        return str(error) or "no answer"
    writer.close()
    return ""


async def _connect(address: str, seconds: float) -> None:
    """Connect to a cluster. In a thread that nobody waits for, since Ray tries for minutes and cannot be called off."""
    import ray

    loop = asyncio.get_running_loop()
    done: asyncio.Future[Exception | None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if not done.done():
            done.set_result(error)

    def connect() -> None:
        error: Exception | None = None
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
        except Exception as raised:  # they have no common base
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=connect, name="connecting", daemon=True).start()
    reason = f"no answer within {seconds:g} seconds"
    try:
        async with asyncio.timeout(seconds):
            if (error := await done) is None:
                return
            reason = " ".join(str(error).split())[:200] or type(error).__name__
    except TimeoutError:
        pass
    raise SetupError(f"there is no Ray cluster at '{address}' ({reason}): ray start --head starts one")
