"""What a person may set of a controller or a worker. All times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from harness.config import Strict
from harness.core import Count, Json, Seconds

PORT = 5020
"""Where AgentRL's clients look for a controller."""


class AccessSettings(Strict, frozen=True, kw_only=True):
    """Who may ask."""

    client_token: str | None = None
    worker_token: str | None = None
    """Not the client's: a client that could register a worker would be sent other people's sessions."""
    allow_workers: tuple[str, ...] = ()
    """Hosts (names, addresses or networks) that a worker's address may name besides this machine's own."""
    request_bytes: Count = 16 << 20
    """Longest body of a request."""


class ControllerSettings(Strict, frozen=True, kw_only=True):
    """How a controller keeps its sessions and workers; the defaults are AgentRL's where it has one."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """0 takes a free one."""
    access: AccessSettings = AccessSettings()
    custom_tasks: bool = False
    """Whether a client may send a task of its own (index -1)."""
    sessions: Count = 20_000
    """Under way at once."""
    kept: Count = 4096
    """Finished sessions whose last answer can be asked for again."""
    turns: Count = 1000
    """Of one session."""
    waiting: Count = 1024
    """Clients of one task that wait for a free slot."""
    start_wait: Seconds = 60.0
    """How long each of them waits."""
    idle: Seconds = 300.0
    finished: Seconds = 600.0
    sweep: Seconds = 5.0
    coma: Seconds = 11.0
    """A worker without a heartbeat for so long gets no new session."""
    lost: Seconds = 30.0
    """After so much longer its sessions are given up."""
    forget: Seconds = 300.0
    """And then it is forgotten."""
    reconcile: Seconds = 60.0
    start: Seconds = 240.0
    interact: Seconds = 240.0


class WorkerSettings(Strict, frozen=True, kw_only=True):
    """Which environment a worker serves, to whom, and with what."""

    env: str
    split: str = "test"
    name: str | None = None
    """Under which the task registers; None is the environment's, with `-SPLIT` behind it where that is not `test`."""
    limit: Count | None = None
    """Only so many tasks of the split; an endless one needs it."""
    controller: str | None = None
    """Address of the controller; None registers nowhere."""
    address: str | None = None
    """Where the controller reaches this worker; None is where it listens."""
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    access: AccessSettings = AccessSettings()
    custom_tasks: bool = False
    concurrency: Count | None = None
    """Sessions at once; None is what the environment bears, or 128."""
    processes: Annotated[int, msgspec.Meta(ge=0, le=256)] | None = None
    """That play the sessions; 0 plays them in the serving process, None fits the environment."""
    recycle_sessions: Count = 500
    """A process that has begun so many sessions is replaced."""
    recycle_bytes: Count = 1 << 30
    """As is one that holds so much memory."""
    idle: Seconds = 660.0
    """A session that no one asks for so long is ended, whatever the controller says."""
    heartbeat: Seconds = 8.0
    drain: Seconds = 30.0
    """How long sessions may go on after SIGTERM."""
    rules: Literal["fixed", "upstream"] = "fixed"
    prompts: Mapping[str, str] = msgspec.field(default_factory=dict)
    settings: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """The environment's own."""
    data: str | None = None

    @property
    def task(self) -> str:
        """The name that the task registers under."""
        return self.name or (self.env if self.split == "test" else f"{self.env}-{self.split}")
