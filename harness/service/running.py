"""Starts a controller or a worker inside this process, on a real socket, for as long as a block runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from harness.core import Env
from harness.errors import SetupError
from harness.service import controller_web, worker_web
from harness.service.access import check_settings, is_loopback
from harness.service.catalogue import Catalogue, make
from harness.service.controller import Controller
from harness.service.hosts import Host, Local
from harness.service.pool import Pool
from harness.service.settings import ControllerSettings, WorkerSettings
from harness.service.web import address_of, bind, serving
from harness.service.worker import Worker


class RunningController(NamedTuple):
    """A controller and where it listens."""

    address: str
    state: Controller


class RunningWorker(NamedTuple):
    """A worker and where it listens."""

    address: str
    worker: Worker


@asynccontextmanager
async def running_controller(
    settings: ControllerSettings, notices: Callable[[], list[str]] = list
) -> AsyncIterator[RunningController]:
    """Serve a controller while the block runs. SetupError where it may or can not listen there."""
    check_settings(settings.host, settings.access, ("client", "worker"))
    bound = bind(settings.host, settings.port)
    controller = Controller(settings)
    controller.open()
    try:
        async with serving(controller_web.app(controller, settings.host, notices), bound):
            try:
                yield RunningController(address_of(bound), controller)
            finally:
                await controller.close()
    finally:
        bound.close()


@asynccontextmanager
async def running_worker(
    settings: WorkerSettings, env: Env | None = None, *, register: bool = True
) -> AsyncIterator[RunningWorker]:
    """Serve a worker while the block runs, which begins when the controller knows it.

    Args:
        settings: what it serves.
        env: the environment itself, where it is made already; its sessions are then played in this process.
        register: whether to wait for the controller.
    """
    check_settings(settings.host, settings.access, ("worker",))
    if not is_loopback(settings.host) and settings.host in {"0.0.0.0", "::"} and settings.address is None:  # noqa: S104
        raise SetupError(f"a worker on {settings.host} needs --address, where the controller reaches it")
    made = env or make(settings)
    catalogue = Catalogue(made, settings)
    processes = 0 if env is not None else processes_of(made, settings)
    host: Host = Pool(settings, processes) if processes else Local(made)
    bound = bind(settings.host, settings.port)
    try:
        worker = Worker(settings, made, catalogue, host, processes)
        await worker.open()
        async with serving(worker_web.app(worker, settings.host), bound):
            try:
                address = address_of(bound)
                worker.register(address)
                if register and settings.controller is not None:
                    await worker.registered.wait()
                yield RunningWorker(address, worker)
            finally:
                await worker.close()
    finally:
        bound.close()


def processes_of(env: Env, settings: WorkerSettings) -> int:
    """Return how many processes play an environment's sessions: one that computes says so by `cpu_bound`."""
    if settings.processes is not None:
        return settings.processes
    return 1 if getattr(env, "cpu_bound", False) else 0
