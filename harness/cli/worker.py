"""`harness worker`: serve one environment's tasks to a controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli._service import service_flags

if TYPE_CHECKING:
    from harness.service.settings import WorkerSettings


@click.command("worker", epilog="Example: harness worker --env alfworld --controller http://127.0.0.1:5020")
@click.option("--env", "-e", required=True, help="The environment.")
@click.option("--controller", "-C", metavar="URL", help="Where to register; without it the worker only serves.")
@click.option("--name", help="Under which its task registers [default: the environment's, with -SPLIT if not test].")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes a free one.")
@click.option("--address", metavar="URL", help="Where the controller reaches this worker [default: where it listens].")
@click.option("--prompts", type=click.Path(path_type=Path), help="TOML with texts that replace the environment's.")
@click.option("--owner", type=int, hidden=True, help="Process with which this one ends.")
@service_flags
def command(owner: int | None, **flags: Any) -> int:
    """Serve an environment's sessions over HTTP, in the AgentRL protocol, until SIGTERM."""
    from harness.cli._service import require_packages, run

    require_packages()
    return run(_serve(_settings(flags), owner))


def _settings(flags: dict[str, Any]) -> WorkerSettings:
    from harness.cli._options import per_environment
    from harness.config import convert, parse_overrides
    from harness.errors import SetupError
    from harness.prompts import read_overrides
    from harness.service.access import WORKER_TOKEN, from_environment, is_address
    from harness.service.protocol import base_url
    from harness.service.settings import WorkerSettings

    env, prompts = flags["env"], flags.pop("prompts")
    overrides = per_environment(parse_overrides(flags.pop("overrides"))).get("env_settings", {})
    if others := sorted(overrides.keys() - {env}):
        raise SetupError(f"--set names the environment '{others[0]}', which this worker does not serve")
    token = from_environment(flags.pop("worker_token_env"), WORKER_TOKEN)
    given = {name: value for name, value in flags.items() if value is not None}
    if flags["controller"] is not None:
        given["controller"] = base_url(flags["controller"])
        if not is_address(given["controller"]):
            raise SetupError(
                f"--controller takes an address such as http://127.0.0.1:5020, not '{flags['controller']}'"
            )
    texts = read_overrides(prompts).get(env, {}) if prompts else {}
    access = {"worker_token": token} if token else {}
    return convert(
        WorkerSettings, {**given, "prompts": texts, "settings": overrides.get(env, {}), "access": access}, "flags"
    )


async def _serve(settings: WorkerSettings, owner: int | None) -> int:
    from harness.cli._service import Stop
    from harness.service.owned import end_with
    from harness.service.running import running_worker

    stop, loop = Stop(), asyncio.get_running_loop()

    def abandoned() -> None:
        loop.call_soon_threadsafe(stop.ask)
        loop.call_soon_threadsafe(stop.ask)

    if owner is not None:
        end_with(owner, abandoned)
    async with running_worker(settings, register=False) as running:
        worker, where = running.worker, f"worker {settings.task} at {running.address}"
        if settings.controller is None:
            click.echo(where, err=True)
        telling = asyncio.create_task(_tell(worker, where))
        await stop.asked.wait()
        telling.cancel()
        await stop.before(worker.drain(settings.drain))
    return 0


async def _tell(worker: Any, where: str) -> None:
    """Say when the controller knows this worker, and why it does not where it changes."""
    told = ""
    while worker.settings.controller is not None:
        state = worker.trouble or (
            f"registered with {worker.settings.controller}" if worker.registered.is_set() else ""
        )
        if state and state != told:
            told = state
            click.echo(f"{where}, {state}", err=True)
        await asyncio.sleep(0.1)
