"""A controller and a worker of the drill, on real sockets in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from harness.core import EnvOptions
from harness.service.controller import Controller
from harness.service.running import running_controller, running_worker
from harness.service.settings import ControllerSettings, WorkerSettings
from harness.service.worker import Worker
from tests.service.drill import Caller, Drill


class Rig(NamedTuple):
    client: Caller
    controller: Controller
    worker: Worker
    at_worker: Caller
    env: Drill


@asynccontextmanager
async def rig(controller: dict[str, Any] | None = None, worker: dict[str, Any] | None = None) -> AsyncIterator[Rig]:
    """Start both. A worker setting of `processes` plays the sessions in a pool."""
    async with running_controller(ControllerSettings(**(controller or {}))) as running:
        given = {"env": "tests.service.drill:make", "name": "drill", "controller": running.address, **(worker or {})}
        env = None if given.get("processes") else Drill(EnvOptions())
        async with running_worker(WorkerSettings(**given), env) as served:
            client, at_worker = Caller(running.address), Caller(served.address)
            made = served.worker.catalogue.env
            assert isinstance(made, Drill)
            yield Rig(client, running.state, served.worker, at_worker, made)
            client.close()
            at_worker.close()
