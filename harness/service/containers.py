"""`harness eval --containers`: a controller, and a worker for each environment, as containers while a run lasts.

Decided here: workers are on a network of their own without a way out, and only the controller has a port, on this
machine's loopback, with tokens made for the run. Containers are read-only, without capabilities, and not root. An
environment whose sessions are containers already (`os`) stays in this process and reaches the engine by the sandbox
protocol, so that no container ever holds the engine's socket. Everything carries the labels of its owner: what a killed
run left is removed by the next.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from harness import datasets, registry
from harness.config import EvalConfig
from harness.core import BoardEntry, Json
from harness.errors import SandboxError, SetupError
from harness.sandbox import docker_owner as owner
from harness.sandbox.docker import reap
from harness.sandbox.docker_engine import Engine, connect, uninterrupted
from harness.service import containers_image
from harness.service.access import CLIENT_TOKEN, WORKER_TOKEN, is_loopback
from harness.service.client_http import TOKEN
from harness.service.health import WORKER_PORT
from harness.service.http import Broken, Http, Unreachable
from harness.service.protocol import base_url
from harness.service.settings import PORT
from harness.service.supervise import UNAVAILABLE

ON_HOST = frozenset({"os"})
"""Environments whose sessions are containers themselves."""
OUTSIDE = frozenset({"db_url", "sparql_url"})
"""Settings that name a server, which nothing in a container without a way out can reach."""
MEMORY_BYTES = 4 << 30
PROCESSES = 1024
TMPFS = "rw,nosuid,nodev,size=1g,mode=1777"
DATA = "/data"
"""Where the image looks for fetched data sets."""
RESTARTS = 5
"""Of a worker that crashes."""
START_SECONDS = 180.0
LOOK_SECONDS = 0.2
ASK_SECONDS = 5.0
STOP_SECONDS = 60.0
CONTROLLER = "controller"

Reach = Callable[[BoardEntry], str]


@asynccontextmanager
async def containers(
    entries: Sequence[BoardEntry], config: EvalConfig, say: Callable[[str], None]
) -> AsyncIterator[Reach]:
    """Run what `entries` need while the block runs.

    Yields a function that names an entry's environment as the registry knows it; it raises SetupError for one whose
    worker cannot run in a container.

    Raises:
        SetupError: no engine, no image, or settings that a container cannot have.
    """
    inside = [entry for entry in entries if entry.env not in ON_HOST]
    _refuse(inside, config)
    if not inside:
        yield lambda entry: entry.env
        return
    engine = await connect()
    try:
        await reap(engine)
        options = config.containers
        image = await containers_image.find(engine, options.image, options.base, say)
        fleet = Fleet(engine, image)
        try:
            address = await fleet.start(inside, config)
            failed = await fleet.ready(address)
            with _token(fleet.client_token):
                yield lambda entry: _reached(entry, address, failed)
        finally:
            await uninterrupted(fleet.remove())
    except SandboxError as error:
        raise SetupError(f"the containers cannot be run: {error}") from error
    finally:
        await engine.close()


def task_of(entry: BoardEntry) -> str:
    """Return the name under which an entry's worker registers."""
    return entry.env if entry.split == "test" else f"{entry.env}-{entry.split}"


def _reached(entry: BoardEntry, address: str, failed: Mapping[str, str]) -> str:
    if entry.env in ON_HOST:
        return entry.env
    if (task := task_of(entry)) in failed:
        raise SetupError(f"the worker of '{entry.name}' does not run in a container: {failed[task]}")
    return f"{registry.REMOTE}:{address}#{task}"


def _refuse(entries: Sequence[BoardEntry], config: EvalConfig) -> None:
    """Refuse what contradicts containers, before anything is started."""
    if config.controller is not None:
        raise SetupError("--containers starts a controller of its own: leave --controller out")
    url = os.environ.get("DOCKER_HOST") or "unix:"
    if not url.startswith("unix:") and not is_loopback(urlsplit(url).hostname or ""):
        raise SetupError(f"--containers needs a container engine on this machine, not at {url}: unset DOCKER_HOST")
    for entry in entries:
        if ":" in entry.env:
            raise SetupError(f"--containers plays the project's own environments, not '{entry.env}': leave it out")
        if outside := sorted(OUTSIDE & entry.settings.keys()):
            raise SetupError(
                f"env.{entry.env}.{outside[0]} names a server, and a container has no way out to it: play without "
                "--containers"
            )
        if config.prompts.get(entry.env):
            raise SetupError(
                f"--prompts for '{entry.env}' cannot be given to its container: play without --containers, or at a "
                "worker that has them"
            )


@contextmanager
def _token(token: str) -> Iterator[None]:
    """Have the controller's token where this process's client looks for it."""
    before = os.environ.get(TOKEN)
    os.environ[TOKEN] = token
    try:
        yield
    finally:
        if before is None:
            del os.environ[TOKEN]
        else:
            os.environ[TOKEN] = before


class Fleet:
    """The containers and networks of one run."""

    def __init__(self, engine: Engine, image: str) -> None:
        self.client_token = secrets.token_urlsafe(24)
        self._worker_token = secrets.token_urlsafe(24)
        self._engine = engine
        self._image = image
        self._run = f"{containers_image.NAME}-{secrets.token_hex(6)}"
        self._labels = owner.labels(self._run)
        self._networks = {way: f"{self._run}-{way}" for way in ("inside", "outside")}
        self._containers: dict[str, str] = {}
        """Host name in the network -> the container's."""
        self._workers: dict[str, str] = {}
        """Task -> host name."""

    async def start(self, entries: Sequence[BoardEntry], config: EvalConfig) -> str:
        """Start all of them; return the controller's address on this machine."""
        api = self._engine.api
        for way, name in self._networks.items():
            await self._do(api.create_network, name, "bridge", internal=way == "inside", labels=self._labels)
        tasks = {task_of(entry): entry for entry in entries}
        self._workers = {task: f"worker-{number}" for number, task in enumerate(tasks)}
        allowed = [part for host in self._workers.values() for part in ("--allow-worker", host)]
        command = ["serve", "--env", "none", "--host", "0.0.0.0", "--port", str(PORT), *allowed]  # noqa: S104
        tokens = {CLIENT_TOKEN: self.client_token, WORKER_TOKEN: self._worker_token}
        await self._create(CONTROLLER, command, tokens, port_bindings={PORT: ("127.0.0.1", None)})
        await self._do(api.connect_container_to_network, self._containers[CONTROLLER], self._networks["outside"])
        binds = _data(config)
        for task, entry in tasks.items():
            arguments = worker_arguments(entry, config, self._workers[task])
            await self._create(self._workers[task], arguments, {WORKER_TOKEN: self._worker_token}, binds=binds)
        for name in self._containers.values():
            await self._do(api.start, name)
        return await self._address()

    async def ready(self, address: str) -> dict[str, str]:
        """Wait until every worker is known to the controller; return why those are not that have ended, by task."""
        failed: dict[str, str] = {}
        http = Http()
        try:
            async with asyncio.timeout(START_SECONDS):
                while waiting := self._workers.keys() - failed.keys() - await self._known(http, address):
                    await self._refuse_ended(CONTROLLER)
                    for task in waiting:
                        if reason := await self._ended(self._workers[task]):
                            failed[task] = reason
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError as error:
            raise SetupError(
                f"the worker of '{sorted(waiting)[0]}' has not registered within {START_SECONDS:.0f} s: see what "
                "else runs on this machine"
            ) from error
        finally:
            http.close()
        return failed

    async def remove(self) -> None:
        """Remove all containers, then the networks."""
        async with asyncio.timeout(STOP_SECONDS):
            found = await asyncio.gather(
                *(self._engine.remove(name) for name in self._containers.values()), return_exceptions=True
            )
        await reap_networks(self._engine, self._run)
        if errors := [each for each in found if isinstance(each, BaseException)]:
            raise errors[0]

    async def _do(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a call that must not be left half done: what it made is removed afterwards."""
        return await uninterrupted(self._engine.call(method, *arguments, **options))

    async def _create(self, host: str, command: list[str], variables: dict[str, str], **more: Any) -> None:
        api = self._engine.api
        network = self._networks["inside"]
        limits = api.create_host_config(
            network_mode=network,
            read_only=True,
            tmpfs={"/tmp": TMPFS},  # noqa: S108 - in the container
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            mem_limit=MEMORY_BYTES,
            pids_limit=PROCESSES,
            restart_policy={"Name": "on-failure", "MaximumRetryCount": RESTARTS},
            log_config={"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            **more,
        )
        ends = api.create_endpoint_config(aliases=[host])
        self._containers[host] = f"{self._run}-{host}"
        await self._do(
            api.create_container,
            self._image,
            command,
            name=self._containers[host],
            hostname=host,
            user=_user(),
            environment=variables,
            labels=self._labels,
            ports=list(more.get("port_bindings", ())),
            host_config=limits,
            networking_config=api.create_networking_config({network: ends}),
        )

    async def _address(self) -> str:
        """Return where the controller's port is published."""
        about = await self._engine.call(self._engine.api.inspect_container, self._containers[CONTROLLER])
        published = (about["NetworkSettings"]["Ports"] or {}).get(f"{PORT}/tcp")
        if not published:
            raise SetupError(f"the controller's container does not run: {await self._last(CONTROLLER)}")
        return f"http://127.0.0.1:{published[0]['HostPort']}"

    async def _known(self, http: Http, address: str) -> set[str]:
        """Return the tasks that the controller has a worker for."""
        headers = {"authorization": f"Bearer {self.client_token}"}
        url = f"{base_url(address)}/list_workers"
        try:
            reply = await http.request("GET", url, body=b"", headers=headers, seconds=ASK_SECONDS)
        except (Unreachable, Broken, TimeoutError):
            return set()
        return set(msgspec.json.decode(reply.body, type=dict[str, Any])) if reply.status == 200 else set()

    async def _ended(self, host: str) -> str | None:
        """Return the last thing that a container said, if it cannot run or has given up."""
        about = await self._engine.call(self._engine.api.inspect_container, self._containers[host])
        state = about["State"]
        if state["ExitCode"] != UNAVAILABLE and state["Status"] not in {"exited", "dead"}:
            return None
        return await self._last(host)

    async def _refuse_ended(self, host: str) -> None:
        if reason := await self._ended(host):
            raise SetupError(f"the {host}'s container has ended: {reason}")

    async def _last(self, host: str) -> str:
        said: bytes = await self._engine.call(self._engine.api.logs, self._containers[host], tail=1)
        return said.decode(errors="replace").strip()[-1000:].removeprefix("harness: ") or "it said nothing"


async def reap_networks(engine: Engine, run: str) -> None:
    """Remove the networks of one run."""
    for network in await engine.call(engine.api.networks, filters={"label": f"{owner.RUN}={run}"}):
        await engine.call(engine.api.remove_network, network["Id"])


def worker_arguments(entry: BoardEntry, config: EvalConfig, host: str) -> list[str]:
    """Return the command of an entry's worker, which listens as `host`."""
    arguments = ["worker", "--env", entry.env, "--split", entry.split, "--rules", entry.rules]
    arguments += ["--controller", f"http://{CONTROLLER}:{PORT}", "--host", "0.0.0.0"]  # noqa: S104 - in the container
    arguments += ["--port", str(WORKER_PORT), "--address", f"http://{host}:{WORKER_PORT}"]
    if config.limit is not None and config.shuffle is None and not config.task_ids:
        arguments += ["--limit", str(config.limit)]
    for name, value in entry.settings.items():
        arguments += ["--set", f"env.{entry.env}.{name}={_toml(value)}"]
    return arguments


def _toml(value: Json) -> str:
    """Return a setting's value as TOML, which has JSON's spelling but for tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _data(config: EvalConfig) -> list[str]:
    """Return the mount of the fetched data sets, read-only; none where there is no such folder."""
    folder = datasets.cache(Path(config.data) if config.data else None)
    return [f"{folder.resolve()}:{DATA}:ro"] if folder.is_dir() else []


def _user() -> str | None:
    """Return the person, who can read their own data; for root, the image's own user."""
    return f"{os.getuid()}:{os.getgid()}" if hasattr(os, "getuid") and os.getuid() else None
