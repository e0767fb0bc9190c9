"""Finds environments, agents and models by short name, `module:attr`, or entry point, and imports them only then.

A short name is a file or folder of its room: `db` is `envs/db/env.py`, `react` is `agents/react.py`, `scripted/oracle`
is `agents/scripted/oracle.py`. Each such module has a factory called `make`. A name may carry an argument behind a
colon (`program:./agent`, `scripted/oracle:0.3`). A package elsewhere registers an entry point in the group
`harness.envs`, `harness.agents` or `harness.models`. `agentrl:URL#TASK` is an environment that a controller has.

The rooms have common names, so another package may have taken one: the room must be the folder beside `harness/`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from harness.core import Agent, Env, EnvOptions
from harness.errors import HarnessError, SetupError, nearest

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds `harness/` and the rooms."""

REMOTE = "agentrl"
"""The environment's name that stands for a task of a controller, which its argument names."""

Factory = Callable[..., Any]


def room(name: str) -> Path | None:
    """Return the folder of a room beside `harness/`, or None where it is absent.

    Raises:
        SetupError: another package of that name would be imported in its place.
    """
    folder = ROOT / name
    if not folder.is_dir():
        return None
    spec = importlib.util.find_spec(name)
    locations = list(spec.submodule_search_locations or []) if spec else []
    if folder.resolve() not in [Path(location).resolve() for location in locations]:
        raise SetupError(
            f"Python finds '{name}' at {locations or 'nowhere'}, not at {folder}: another package has taken the name; "
            "uninstall it or run from the project's folder"
        )
    return folder


def _import(module: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            raise SetupError(f"no {what}: there is no module '{error.name}'") from error
        raise SetupError(f"{what} needs the package '{error.name}', which is not installed") from error
    except SetupError:
        raise
    except Exception as error:
        raise SetupError(f"{what} cannot be imported: {type(error).__name__}: {error}") from error


def _entry_points(kind: str) -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=f"harness.{kind}")}


def _members(kind: str) -> dict[str, str]:
    """Return short name -> module of each member in a room."""
    folder = room(kind)
    if folder is None:
        return {}
    if kind == "envs":
        return {path.parent.name: f"envs.{path.parent.name}.env" for path in sorted(folder.glob("*/env.py"))}
    files = [*folder.glob("*.py"), *folder.glob("scripted/*.py")]
    return {
        str(path.relative_to(folder).with_suffix("")): ".".join([kind, *path.relative_to(folder).with_suffix("").parts])
        for path in sorted(files)
        if not path.name.startswith("_") and path.stem != "commands"
    }


def names(kind: str) -> list[str]:
    """Return the short names of a kind ("envs" or "agents"): the room's own, then the entry points'."""
    return [*_members(kind), *sorted(_entry_points(kind))]


def factory(kind: str, spec: str) -> tuple[Factory, str]:
    """Return the factory that `spec` names and the argument behind the name ("" if none).

    Raises:
        SetupError: no such member, module or attribute; the message has the nearest names.
    """
    what = kind.removesuffix("s")
    short, _, argument = spec.partition(":")
    members = _members(kind)
    if short in members:
        return cast(Factory, _import(members[short], f"{what} '{short}'").make), argument
    points = _entry_points(kind)
    if short in points:
        return cast(Factory, points[short].load()), argument
    if argument and "/" not in short and all(part.isidentifier() for part in short.split(".")):
        if importlib.util.find_spec(short.split(".")[0]) is None:
            raise SetupError(f"no {what} '{spec}': there is no module '{short}'{nearest(short, names(kind))}")
        module = _import(short, f"{what} '{spec}'")
        if not hasattr(module, argument):
            known = [name for name in dir(module) if not name.startswith("_")]
            raise SetupError(f"no {what} '{spec}': module '{short}' has no '{argument}'{nearest(argument, known)}")
        return cast(Factory, getattr(module, argument)), ""
    raise SetupError(f"no {what} '{spec}'{nearest(short, names(kind))}")


def make_env(spec: str, options: EnvOptions) -> Env:
    """Make the environment that `spec` names."""
    if spec.partition(":")[0] == REMOTE:
        client = _import("harness.service.client", f"env '{spec}'")
        return cast(Env, client.make(options, spec.partition(":")[2]))
    make, _ = factory("envs", spec)
    return cast(Env, made(make, f"env '{spec}'", ("tasks", "session"), options))


def make_agent(spec: str, settings: dict[str, Any] | None = None) -> Agent:
    """Make the agent that `spec` names; `settings` are its own, and it refuses those it does not know."""
    make, argument = factory("agents", spec)
    return cast(Agent, made(make, f"agent '{spec}'", ("start", "needs_model"), argument, settings or {}))


def made(make: Factory, what: str, has: Sequence[str], *arguments: object) -> Any:
    """Call a factory, which may be anybody's code. SetupError where it fails, or makes something else."""
    try:
        thing = make(*arguments)
    except HarnessError:
        raise
    except Exception as error:
        raise SetupError(f"{what} cannot be made: {type(error).__name__}: {error}") from error
    if missing := [name for name in has if not hasattr(thing, name)]:
        raise SetupError(f"{what} is none: its factory made a {type(thing).__name__}, which has no '{missing[0]}'")
    return thing
