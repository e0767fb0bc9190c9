"""What `harness serve` and `harness worker` share: flags, tokens, the event loop and its signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from harness.errors import SetupError

Function = TypeVar("Function", bound=Callable[..., Any])

positive = click.IntRange(min=1)

FLAGS = [
    click.option("--split", default="test", show_default=True, help="Which tasks are served."),
    click.option("--limit", "-n", type=positive, help="Only so many of them; an endless split needs it."),
    click.option("--concurrency", type=positive, help="Sessions of one worker at once [default: what it bears]."),
    click.option("--processes", type=click.IntRange(0, 256), help="Processes that play one worker's sessions."),
    click.option("--rules", type=click.Choice(["fixed", "upstream"]), default="fixed", show_default=True),
    click.option("--data", help="Folder of fetched data sets [default: the user's cache]."),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="env.NAME.key of an environment."),
    click.option("--custom-tasks", is_flag=True, help="Let clients send tasks of their own."),
    click.option("--drain", type=click.FloatRange(0, 3600), default=30.0, show_default=True, help="Seconds that "
                 "sessions may go on after SIGTERM."),
    click.option("--worker-token-env", metavar="NAME", help="Variable with the workers' token [HARNESS_WORKER_TOKEN]."),
]  # fmt: skip


def service_flags(function: Function) -> Function:
    """Give a command the flags that both have."""
    for flag in reversed(FLAGS):
        function = flag(function)
    return function


def require_packages() -> None:
    """Refuse to go on where the extra is not installed."""
    import importlib.util

    for name in ("httptools", "prometheus_client", "starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise SetupError(f"the package '{name}' is not installed: pip install 'agent-harness[service]'")


def run(main: Coroutine[Any, Any, int]) -> int:
    """Run an event loop, the faster one where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


class Stop:
    """Says when to stop: the first SIGINT or SIGTERM asks for it, the second means at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self.ask)

    def ask(self) -> None:
        """Ask to stop, once more to stop at once."""
        if self.asked.is_set():
            self.at_once.set()
        self.asked.set()

    async def before(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something unless, or until, it is to stop at once."""
        doing = asyncio.create_task(work)
        waiting = asyncio.create_task(self.at_once.wait())
        await asyncio.wait([doing, waiting], return_when=asyncio.FIRST_COMPLETED)
        for task in (doing, waiting):
            task.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)
