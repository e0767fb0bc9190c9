"""The Docker back-end: a container a box, by the engine that DOCKER_HOST names (Docker, or Podman through its socket).

Decided here: a box that its owner's death orphans ends by itself (see `docker_keeper`) and what is left all the same is
removed by the next `open` on the machine. Memory, processes and processors are bounded by the engine's cgroups. Bytes
on disk are bounded by the engine's quota where its storage has one (XFS with project quotas, btrfs, zfs); elsewhere no
file grows beyond the bound, and a box whose files together pass it is ended within seconds of it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from harness.core import Json
from harness.errors import SandboxError, SetupError
from harness.sandbox import Bounds
from harness.sandbox import docker_images as images
from harness.sandbox import docker_owner as owner
from harness.sandbox.docker_box import DockerBox
from harness.sandbox.docker_container import CAPABILITIES, Place, configuration
from harness.sandbox.docker_engine import Engine, connect
from harness.sandbox.docker_judge import Judges

WATCH_SECONDS = 1.0
NEEDED = {"MemoryLimit": "memory", "PidsLimit": "the number of processes"}
HEALTHY_SECONDS = 60.0
LOOK_SECONDS = 5.0
QUOTA_PROBE_BYTES = 1 << 30


class Docker:
    """The back-end.

    Settings: `image` is the default root in place of our own; `base` what our own is built on; `host` the engine's
    address in place of DOCKER_HOST; `roots` further roots to have ready, and in the fingerprint, from the start;
    `trusted` takes an engine that cannot keep every bound.
    """

    name = "docker"

    def __init__(
        self,
        *,
        image: str | None = None,
        base: str = images.BASE,
        host: str | None = None,
        roots: Sequence[str] = (),
        trusted: bool = False,
    ) -> None:
        self._default = image or "default"
        self._base = base
        self._host = host
        self._roots = (self._default, *roots)
        self._trusted = trusted
        self._run = f"agent-harness-{secrets.token_hex(6)}"
        self._count = 0
        self._boxes: dict[str, DockerBox] = {}
        self._images: dict[str, images.Image] = {}
        self._finding = asyncio.Lock()
        self._place: Place | None = None
        self._judges: Judges | None = None
        self._watching: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Reach the engine, remove what killed runs left, find or build the image. SetupError with the remedy."""
        engine = await connect(self._host)
        try:
            self._refuse_unbounded(engine)
            await reap(engine)
            for root in self._roots:
                self._images[root] = await images.resolve(engine, root, self._base)
            self._place = await self._survey(engine, self._images[self._default])
        except BaseException:
            await engine.close()
            raise
        self._judges = Judges(self._place, self._run)
        if not self._place.quota:
            self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """End every box that is still open, remove what boxes shared, and what killed runs left meanwhile."""
        if self._place is None or self._judges is None:
            return
        if self._watching:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        engine = self._place.engine
        try:
            await asyncio.gather(*[box.remove() for box in list(self._boxes.values())], return_exceptions=True)
            await self._judges.close()
            await reap(engine)
        finally:
            self._place = self._judges = None
            await engine.close()

    async def look(self) -> str:
        """Say which engine answers, and whether the image is still to be built or pulled."""
        engine = await connect(self._host, seconds=LOOK_SECONDS)
        try:
            self._refuse_unbounded(engine)
            name = images.tag(self._default, self._base)
            image = await images.find(engine, name)
        except SandboxError as error:
            raise SetupError(f"{error}: see that the engine works") from error
        finally:
            await engine.close()
        return f"{engine.name} {engine.version}" + ("" if image else f"; the first run will make the image {name}")

    def box(self, bounds: Bounds, *, root: str = "default") -> DockerBox:
        """Return a box that is not yet open; `root` is `default`, `packages` or an image's name."""
        if self._place is None or self._judges is None:
            raise SandboxError("the sandbox is not open")
        if bounds.network and not self._place.network:
            raise SandboxError("the container engine has no network to give to a box: it has no bridge")
        self._count += 1
        root = self._default if root == "default" else root

        async def image() -> images.Image:
            return await self._image(root)

        name = f"{self._run}-box-{self._count}"
        return DockerBox(self._place, bounds, name, image=image, judges=self._judges, others=self._boxes)

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on."""
        place = self._opened()
        engine = place.engine
        quota = "the engine's quota" if place.quota else "each file by rlimit, all of them by a look once a second"
        return {
            "backend": self.name,
            "engine": {"name": engine.name, "version": engine.version},
            "images": {root: self._images[root].id for root in self._roots},
            "bounds": {
                "memory": "cgroup" if engine.about.get("SwapLimit") else "cgroup, swap not counted",
                "processes": "cgroup",
                "cpus": "cgroup",
                "disk": quota,
                "files": "not bounded in number",
            },
            "capabilities": list(CAPABILITIES),
            "security": sorted(engine.about.get("SecurityOptions") or ()),
            "judge": "own container: copied files, untouched programs, the box's processes and network",
        }

    async def healthy(self) -> bool:
        """Check the engine with a box of its own."""
        try:
            async with asyncio.timeout(HEALTHY_SECONDS), self.box(Bounds()) as box:
                return (await box.run(["true"], seconds=HEALTHY_SECONDS)).status == 0
        except (SandboxError, TimeoutError):
            return False

    def _opened(self) -> Place:
        if self._place is None:
            raise SandboxError("the sandbox is not open")
        return self._place

    def _refuse_unbounded(self, engine: Engine) -> None:
        lacking = [what for key, what in NEEDED.items() if not engine.about.get(key)]
        if lacking and not self._trusted:
            raise SetupError(
                f"the container engine cannot bound {' or '.join(lacking)} (its cgroups lack the controller): enable "
                "it, or say trusted=true where the commands are your own"
            )

    async def _image(self, root: str) -> images.Image:
        async with self._finding:
            if root not in self._images:
                self._images[root] = await images.resolve(self._opened().engine, root, self._base)
            return self._images[root]

    async def _survey(self, engine: Engine, image: images.Image) -> Place:
        names = {network["Name"] for network in await engine.call(engine.api.networks)}
        place = Place(
            engine=engine,
            labels=owner.labels(self._run),
            processors=int(engine.about.get("NCPU") or 1),
            quota=True,
            network=next((name for name in ("bridge", "podman") if name in names), ""),
        )
        probe = f"{self._run}-quota"
        try:
            made = configuration(place, Bounds(disk_bytes=QUOTA_PROBE_BYTES), image.id, ["true"])
            await engine.call(engine.api.create_container_from_config, made, probe)
        except SandboxError:
            return msgspec.structs.replace(place, quota=False)
        finally:
            await engine.remove(probe)
        return place

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for box in list(self._boxes.values()):
                with suppress(SandboxError):  # it is ended, or the next look comes
                    await box.weigh()


async def reap(engine: Engine) -> None:
    """Remove the containers, networks, volumes and images whose owner was a process of this machine and has ended."""
    api, ours = engine.api, {"label": owner.RUN}
    for container in await engine.call(api.containers, all=True, filters=ours):
        if owner.orphaned(container["Labels"] or {}):
            await engine.remove(container["Id"])
    for network in await engine.call(api.networks, filters=ours):
        if owner.orphaned(network["Labels"] or {}):
            with suppress(SandboxError):  # in use: another's
                await engine.call(api.remove_network, network["Id"])
    for volume in (await engine.call(api.volumes, filters=ours)).get("Volumes") or ():
        if owner.orphaned(volume["Labels"] or {}):
            with suppress(SandboxError):  # in use: another's
                await engine.call(api.remove_volume, volume["Name"], force=True)
    for image in await engine.call(api.images, filters=ours):
        if owner.orphaned(image["Labels"] or {}):
            with suppress(SandboxError):
                await engine.call(api.remove_image, image["Id"], force=True)
