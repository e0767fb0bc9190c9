"""A container engine for tests: the one that runs here, or a private one where the machine lets us start it.

Its image is made of this machine's own Debian packages, so that it needs neither a registry nor a mirror.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

IMAGE = "agent-harness-test"
PACKAGES = (  # noqa: SIM905 - a list of words
    "base-files base-passwd bash bsdutils coreutils dash debianutils diffutils findutils grep gzip hostname iproute2 "
    "libc-bin libpam-modules libpam-runtime login mawk mount ncurses-base passwd perl-base procps python3 sed "
    "sysvinit-utils tar util-linux util-linux-extra"
).split()
LEFT_OUT = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/", "/usr/share/lintian/")
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
LOCAL = ("usr/local/bin", "usr/local/lib")
START_SECONDS = 30.0
STOP_SECONDS = 30.0


@contextmanager
def engine() -> Iterator[str]:
    """Yield the address of a container engine. RuntimeError says why there can be none."""
    running = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if answers(running):
        yield running
        return
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        raise RuntimeError("no container engine runs here, and starting one takes root and dockerd")
    folder = Path(tempfile.mkdtemp(prefix="dockerd-", dir="/var/tmp"))
    try:
        with private(folder) as url:
            yield url
    finally:
        for mount in sorted(mounts(folder), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False, timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def private(folder: Path) -> Iterator[str]:
    """Run an engine whose every file is in a folder, without a network of its own."""
    url = f"unix://{folder}/docker.sock"
    options = f"--data-root {folder}/data --exec-root {folder}/exec --pidfile {folder}/pid -H {url} --bridge=none"
    options += " --iptables=false --ip6tables=false --ip-forward=false --exec-opt native.cgroupdriver=cgroupfs"
    options += " --host-gateway-ip=127.0.0.1"  # without a bridge it has none, and compose files may name it
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            ["dockerd", *options.split()], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd does not start: {(folder / 'log').read_text()[-500:]}")
            time.sleep(0.1)
        yield url
    finally:
        stop(process, folder)


def stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End the engine and what runs under it."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


def mounts(folder: Path) -> list[str]:
    """Return what is mounted in a folder."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]


def answers(url: str) -> bool:
    """Whether an engine answers at an address."""
    import docker

    client = None
    try:
        client = docker.APIClient(base_url=url, version="auto", timeout=10)
        return bool(client.ping())
    except (docker.errors.DockerException, OSError):
        return False
    finally:
        if client:
            client.close()


@contextmanager
def machine_image(url: str) -> Iterator[str]:
    """Yield the name of an image of this machine's packages. RuntimeError where that is no Debian."""
    import docker

    if not shutil.which("dpkg-query"):
        raise RuntimeError("the test image is made of Debian packages, which this machine has none of")
    client = docker.APIClient(base_url=url, version="auto", timeout=120)
    image = f"{IMAGE}:{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name, (Path(name) / "root.tar").open("w+b") as archive:
            root = Path(name) / "root"
            copy_packages(root)
            subprocess.run(["tar", "--create", "--directory", root, "."], stdout=archive, check=True, timeout=60)
            told = client.import_image_from_file(archive.name, IMAGE, "imported")
            client.tag(json.loads(told.strip().splitlines()[-1])["status"], *image.split(":"))
        yield image
        client.remove_image(image, force=True)
    finally:
        client.close()


def copy_packages(root: Path, *more: str) -> None:
    """Copy the files of the packages, and what their installation made, to a folder."""
    for name in ["dev", "proc", "sys", "run", "tmp", "var/tmp", "etc", "root", "home", "mnt", *LOCAL]:
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for link in MERGED:
        if Path(f"/{link}").is_symlink():
            (root / "usr" / link).mkdir()
            (root / link).symlink_to(f"usr/{link}")
    made = ["/etc/alternatives", *map(str, Path("/etc/alternatives").iterdir()), "/etc/ld.so.cache"]
    made += [*map(str, Path("/etc/pam.d").glob("common-*")), "/usr/bin/awk", "/usr/bin/which"]
    names = [merged(path) for path in [*package_files(closure(*more)), *made] if not path.startswith(LEFT_OUT)]
    listed = "\0".join(sorted({name for name in names if os.path.lexists(name)}))
    pack = ["tar", "--create", "--no-recursion", "--null", "--files-from", "-", "--directory", "/"]
    with subprocess.Popen(pack, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
        assert packing.stdin
        unpacking = subprocess.Popen(["tar", "--extract", "--directory", root], stdin=packing.stdout)
        packing.stdin.write(listed.encode())
        packing.stdin.close()
        assert unpacking.wait(60) == 0
    for name in ("passwd", "group"):
        shutil.copy(f"/usr/share/base-passwd/{name}.master", root / "etc" / name)


def merged(path: str) -> str:
    """Return a file's one name where /bin is a link to /usr/bin."""
    first = path.split("/")[1]
    return f"/usr{path}" if first in MERGED and Path(f"/{first}").is_symlink() and path != f"/{first}" else path


def closure(*more: str) -> set[str]:
    """Return the packages and all that they depend on, of those installed here."""
    asked = ["dpkg-query", "--show", "--showformat", "${Package}\t${Depends}, ${Pre-Depends}\n"]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    needs = dict(line.split("\t") for line in lines)
    found: set[str] = set()
    waiting = [*PACKAGES, *more]
    while waiting:
        name = waiting.pop()
        if name in found or name not in needs:
            continue
        found.add(name)
        waiting += [part.split("(")[0].split(":")[0].strip() for part in needs[name].replace("|", ",").split(",")]
    return found


def package_files(packages: set[str]) -> list[str]:
    """Return the paths that packages own."""
    asked = ["dpkg-query", "--listfiles", *sorted(packages)]
    lines = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30).stdout.splitlines()
    return [line for line in lines if line.startswith("/") and line != "/."]
