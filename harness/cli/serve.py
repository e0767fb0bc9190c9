"""`harness serve`: a controller and the workers of its environments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from harness.cli._service import service_flags

if TYPE_CHECKING:
    from harness.service.running import RunningController
    from harness.service.settings import AccessSettings, ControllerSettings
    from harness.service.supervise import Place


@click.command(
    "serve",
    epilog="Example: harness serve --env db,kg, then: harness eval --model M --controller http://127.0.0.1:5020",
)
@click.option(
    "--env",
    "-e",
    default="all",
    show_default=True,
    help="Environments, separated by commas; 'none' for a controller alone.",
)
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes of each.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; others than loopback need tokens."
)
@click.option("--port", type=click.IntRange(0, 65535), default=5020, show_default=True, help="0 takes a free one.")
@click.option("--allow-worker", multiple=True, metavar="HOST", help="Name, address or network that workers may have.")
@click.option(
    "--ray",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Place the workers on a Ray cluster [auto: the one that this machine belongs to].",
)
@click.option(
    "--ray-cpus", type=click.FloatRange(0), default=1.0, show_default=True, help="CPUs that a worker takes with --ray."
)
@click.option("--client-token-env", metavar="NAME", help="Variable with the clients' token [HARNESS_CLIENT_TOKEN].")
@service_flags
def command(**flags: Any) -> int:
    """Serve environments over HTTP, in the AgentRL protocol, with a status page at / and metrics at /metrics."""
    from harness.cli._service import require_packages, run
    from harness.errors import SetupError
    from harness.service.access import CLIENT_TOKEN, WORKER_TOKEN, from_environment
    from harness.service.settings import AccessSettings, ControllerSettings

    require_packages()
    access = AccessSettings(
        client_token=from_environment(flags["client_token_env"], CLIENT_TOKEN),
        worker_token=from_environment(flags["worker_token_env"], WORKER_TOKEN),
        allow_workers=flags["allow_worker"],
    )
    settings = ControllerSettings(
        host=flags["host"], port=flags["port"], access=access, custom_tasks=flags["custom_tasks"]
    )
    names = _environments(flags["env"])
    for override in flags["overrides"]:
        if not any(override.startswith(f"env.{name}.") for name in names):
            raise SetupError(f"--set takes env.NAME.key=value, of an environment that is served, not '{override}'")
    return run(_serve(settings, names, flags))


def _environments(asked: str) -> list[str]:
    """Return the environments that a person named. SetupError for one that is not there."""
    from harness import registry

    if asked in {"all", "none"}:
        return registry.names("envs") if asked == "all" else []
    names = [name.strip() for name in asked.split(",") if name.strip()]
    for name in names:
        registry.factory("envs", name)
    return names


async def _serve(settings: ControllerSettings, names: list[str], flags: dict[str, Any]) -> int:
    from harness.service.cluster import joined

    async with joined(flags["ray"]) if flags["ray"] else nullcontext() as here:
        return await _keep(settings, names, flags, here)


async def _keep(settings: ControllerSettings, names: list[str], flags: dict[str, Any], here: str | None) -> int:
    """Keep a controller and its workers; `here` is this machine's address in the cluster that they are placed on."""
    from harness.cli._service import Stop
    from harness.service.running import running_controller
    from harness.service.supervise import Process, Supervisor

    stop = Stop()
    supervisors: list[Supervisor] = []
    async with running_controller(settings, lambda: [each for one in supervisors for each in one.notices]) as running:
        click.echo(f"controller at {running.address}", err=True)
        keeping = None
        if names:
            workers = [each for name in names for each in [_arguments(name, running, flags, here)] * flags["workers"]]
            supervisor = Supervisor(
                workers,
                _tokens(settings.access),
                lambda text: click.echo(text, err=True),
                running.state.metrics.restarted,
                Process if here is None else _on_cluster(settings, running, flags["ray_cpus"]),
            )
            supervisors.append(supervisor)
            keeping = asyncio.create_task(supervisor.run())
        asked = asyncio.create_task(stop.asked.wait())
        try:
            await asyncio.wait([each for each in (asked, keeping) if each], return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            for each in supervisors:
                await stop.before(each.stop(flags["drain"]))
                await each.stop(0)  # those that are left, told for the second time, end at once
        if keeping is not None:
            await keeping
    return 0


def _on_cluster(settings: ControllerSettings, running: RunningController, cpus: float) -> Callable[[], Place]:
    """Return what places a worker on the cluster."""
    from harness.service.access import is_loopback
    from harness.service.cluster import Actor

    return partial(Actor, cpus, None if is_loopback(settings.host) else running.state.placed.add)


def _arguments(name: str, running: RunningController, flags: dict[str, Any], here: str | None) -> list[str]:
    """Return the arguments of one environment's workers."""
    near = f"[{here}]" if here and ":" in here else here
    address = running.address.replace("//0.0.0.0:", f"//{near or '127.0.0.1'}:")
    address = address.replace("//[::]:", f"//{near or '[::1]'}:")
    arguments = ["--env", name, "--controller", address]
    for flag in ("split", "limit", "concurrency", "processes", "rules", "data", "drain"):
        if flags[flag] is not None:
            arguments += [f"--{flag}", str(flags[flag])]
    for override in flags["overrides"]:
        if override.startswith(f"env.{name}."):
            arguments += ["--set", override]
    return [*arguments, *(["--custom-tasks"] if flags["custom_tasks"] else [])]


def _tokens(access: AccessSettings) -> dict[str, str]:
    from harness.service.access import WORKER_TOKEN

    return {WORKER_TOKEN: access.worker_token} if access.worker_token else {}
