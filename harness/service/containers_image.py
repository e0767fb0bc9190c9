"""The image of controller and workers: found by a hash of the project's own files, built once where it is missing.

Decided here: what is played in a container is what lies in this checkout, since the image's tag is a hash of the files
that it is made of and of its base. An installed package has no Dockerfile's context: there an image is named.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.errors import SetupError
from harness.registry import ROOT
from harness.sandbox.docker_engine import Engine, Missing

DOCKERFILE = "harness/service/images/Dockerfile"
BASE = "docker.io/library/python:3.11-slim"
NAME = "agent-harness"
BUILD_SECONDS = 1800.0
LOG_LINES = 3
LOG_CHARACTERS = 600


async def find(engine: Engine, name: str | None, base: str | None, say: Callable[[str], None]) -> str:
    """Return the id of the image: the one that is named, or ours, built if the engine has none. SetupError if not."""
    tag = name or f"{NAME}:{await _digest(base or BASE)}"
    try:
        return str((await engine.call(engine.api.inspect_image, tag))["Id"])
    except Missing:
        pass
    if name:
        raise SetupError(f"the container engine has no image '{name}': {_by_hand(name)}")
    say(f"building the image {tag} from {base or BASE} …")
    stop = threading.Event()
    try:
        failure = await engine.call(_build, engine.api, tag, base or BASE, stop, seconds=BUILD_SECONDS)
    finally:
        stop.set()
    if failure:
        raise SetupError(
            f"the image of the workers cannot be built on {base or BASE} ({failure}); name another base with --set "
            f"containers.base=IMAGE, or an image that is there with --set containers.image=IMAGE"
        )
    return str((await engine.call(engine.api.inspect_image, tag))["Id"])


def _by_hand(name: str) -> str:
    return f"build it in a checkout of the project: docker build -f {DOCKERFILE} -t {name} ."


async def _digest(base: str) -> str:
    if not (ROOT / "pyproject.toml").is_file():
        raise SetupError(
            f"this package is installed without what its image is built from: {_by_hand(NAME)} and name it with --set "
            f"containers.image={NAME}"
        )
    return await asyncio.to_thread(digest, ROOT, base)


def digest(root: Path, base: str) -> str:
    """Return a hash of the base's name and of every file that goes into the image."""
    from docker.utils.build import exclude_paths

    ignored = [line for line in (root / ".dockerignore").read_text("utf-8").splitlines() if line[:1] not in ("", "#")]
    files = sorted(name for name in exclude_paths(str(root), ignored) if (root / name).is_file())
    content = hashlib.sha256(base.encode())
    for name in files:
        content.update(f"\0{name}\0".encode() + hashlib.sha256((root / name).read_bytes()).digest())
    return content.hexdigest()[:16]


def _build(api: Any, tag: str, base: str, stop: threading.Event) -> str:
    """Build, and return the last lines of what went wrong, or ""."""
    bridged = any(network["Name"] in {"bridge", "podman"} for network in api.networks())
    said: list[str] = []
    for line in api.build(
        path=str(ROOT),
        dockerfile=DOCKERFILE,
        tag=tag,
        buildargs={"BASE": base},
        network_mode=None if bridged else "host",
        rm=True,
        forcerm=True,
        decode=True,
        timeout=BUILD_SECONDS,
    ):
        if stop.is_set():
            return "interrupted"
        said = [*said, str(line.get("error") or line.get("stream") or "").strip()][-LOG_LINES:]
        if "error" in line:
            return " / ".join(part for part in said if part)[-LOG_CHARACTERS:] or "no reason given"
    return ""
