"""`harness eval --containers` with a real engine, and the files that describe the containers."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import runlog
from harness.config import ContainerOptions, EvalConfig
from harness.core import BoardEntry
from harness.errors import SetupError
from harness.registry import ROOT, names
from harness.sandbox import docker_owner
from harness.sandbox.docker_engine import connect
from harness.service import containers_image, health
from harness.service.containers import ON_HOST, containers, worker_arguments
from harness.service.running import running_controller
from harness.service.settings import AccessSettings, ControllerSettings
from tests.service.drill import Caller
from tests.service.real import free_port, python_with

IMAGES = ROOT / "harness/service/images"
PLAYED = "alfworld,kg,db"
SECONDS = 120.0


def entry(env: str = "db", **settings: Any) -> BoardEntry:
    return BoardEntry(name=env, env=env, split="validation", rules="upstream", settings=settings)


def config(**values: Any) -> EvalConfig:
    return EvalConfig(model="scripted/oracle", containers=ContainerOptions(on=True), **values)


async def entered(one: BoardEntry, asked: EvalConfig) -> None:
    async with containers([one], asked, lambda _: None):
        pass


@pytest.mark.parametrize(
    ("one", "asked", "sentence"),
    [
        (entry(), config(controller="http://127.0.0.1:5020"), "leave --controller out"),
        (entry(db_url="mysql://u@h/"), config(), "no way out"),
        (entry("agentrl:http://h/api#t"), config(), "own environments"),
        (entry(), config(prompts={"db": {"rules": "x"}}), "--prompts"),
    ],
)
async def test_what_a_container_cannot_have_is_refused(one: BoardEntry, asked: EvalConfig, sentence: str) -> None:
    with pytest.raises(SetupError, match=sentence):
        await entered(one, asked)


async def test_no_engine_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(SetupError, match="no container engine answers"):
        await entered(entry(), config())
    monkeypatch.setenv("DOCKER_HOST", "tcp://engine.example:2375")
    with pytest.raises(SetupError, match="on this machine"):
        await entered(entry(), config())


def test_a_worker_is_told_what_the_run_asks_for() -> None:
    arguments = worker_arguments(entry(tables=[1, "ö"], other={"a": 0.5}), config(limit=3), "worker-0")
    assert arguments[:7] == ["worker", "--env", "db", "--split", "validation", "--rules", "upstream"]
    assert arguments[-4:] == ["--set", 'env.db.tables=[1, "ö"]', "--set", 'env.db.other={"a" = 0.5}']
    assert arguments[arguments.index("--limit") + 1] == "3"
    assert "--limit" not in worker_arguments(entry(), config(limit=3, shuffle=1), "worker-0")


def test_an_image_is_named_after_its_files(tmp_path: Path) -> None:
    pytest.importorskip("docker")
    (tmp_path / ".dockerignore").write_text("# a comment\n*\n!harness\n**/*.pyc\n")
    (tmp_path / "harness").mkdir()
    code, other = tmp_path / "harness/core.py", tmp_path / "notes.txt"
    code.write_text("1")
    before = containers_image.digest(tmp_path, "base")
    other.write_text("not in the image")
    (tmp_path / "harness/core.pyc").write_text("not in the image")
    assert containers_image.digest(tmp_path, "base") == before
    assert containers_image.digest(tmp_path, "another base") != before
    code.write_text("2")
    assert containers_image.digest(tmp_path, "base") != before


async def test_health_asks_with_the_token_that_the_container_has(monkeypatch: pytest.MonkeyPatch) -> None:
    access = AccessSettings(client_token="c" * 16, worker_token="w" * 16)
    async with running_controller(ControllerSettings(access=access)) as running:
        monkeypatch.setattr(health, "PORT", int(running.address.rpartition(":")[2]))
        monkeypatch.setattr(health, "WORKER_PORT", 1)
        monkeypatch.setenv("HARNESS_CLIENT_TOKEN", "c" * 16)
        assert await asyncio.to_thread(health.main) == 0
        monkeypatch.setenv("HARNESS_CLIENT_TOKEN", "d" * 16)
        assert await asyncio.to_thread(health.main) == 1
    assert await asyncio.to_thread(health.main) == 1


def test_compose_serves_every_environment_without_privileges() -> None:
    services = yaml.safe_load((IMAGES / "compose.yaml").read_text())["services"]
    assert services.keys() == {"controller", *names("envs")}
    allowed = services["controller"]["command"].split()
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["mem_limit"] and service["pids_limit"]
        if name == "controller":
            assert service["ports"] == ["127.0.0.1:${HARNESS_PORT:-5020}:5020"]
            continue
        assert service["networks"] == ["inside"] and "ports" not in service
        assert name in allowed and f"--env {name} " in service["command"]
        assert service.get("profiles") == (["os"] if name in ON_HOST else None)
        assert ("volumes" in service) == (name in ON_HOST)


def test_kubernetes_manifests_fit_together() -> None:
    documents = list(yaml.safe_load_all((IMAGES / "kubernetes.yaml").read_text()))
    kinds = {"Deployment": "apps/v1", "Service": "v1", "NetworkPolicy": "networking.k8s.io/v1"}
    found: dict[tuple[str, str], Any] = {}
    for document in documents:
        assert document.keys() == {"apiVersion", "kind", "metadata", "spec"}
        assert document["apiVersion"] == kinds[document["kind"]]
        found[document["kind"], document["metadata"]["name"]] = document["spec"]
    for name, port in (("controller", 5020), ("db", 5021)):
        deployment, service = found["Deployment", name], found["Service", name]
        template = deployment["template"]
        labels, pod = template["metadata"]["labels"], template["spec"]
        assert deployment["selector"]["matchLabels"].items() <= labels.items()
        assert service["selector"].items() <= labels.items()
        assert service["ports"] == [{"port": port, "targetPort": port}]
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["ports"] == [{"containerPort": port}]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container.keys() >= {"readinessProbe", "livenessProbe", "resources"}
        assert all(isinstance(argument, str) for argument in container["args"])
        secrets = [variable["valueFrom"]["secretKeyRef"] for variable in container["env"]]
        assert {secret["name"] for secret in secrets} == {"harness-tokens"}
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    policy = found["NetworkPolicy", "workers"]
    workers = found["Deployment", "db"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= workers.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]


@pytest.mark.slow
@pytest.mark.heavy
def test_kubernetes_knows_every_field_of_the_manifests(tmp_path: Path) -> None:
    """By the schemas of its own releases, the oldest and the newest that the validator has among them."""
    python, manifests = python_with("kubernetes-validate"), (IMAGES / "kubernetes.yaml").read_text()
    versions = ("1.25", "1.31", "1.37")
    asked = [python, "-m", "kubernetes_validate", "--strict", *(part for each in versions for part in ("-k", each))]

    def refused(text: str) -> str:
        (tmp_path / "manifests.yaml").write_text(text)
        heard = subprocess.run([*asked, tmp_path / "manifests.yaml"], capture_output=True, text=True, timeout=SECONDS)
        return heard.stdout + heard.stderr if heard.returncode else ""

    assert refused(manifests) == ""
    assert "readOnlyRoot" in refused(manifests.replace("readOnlyRootFilesystem", "readOnlyRootFiles"))
    assert refused(manifests.replace("replicas: 1", "replicas: one"))


@pytest.fixture(scope="module")
def docker_host() -> Iterator[tuple[str, str]]:
    """Return an engine's address and the name of a base image in it, or skip."""
    pytest.importorskip("docker")
    from tests.docker_daemon import engine
    from tests.service.container_base import make

    running = engine()
    try:
        url = running.__enter__()
    except RuntimeError as error:
        pytest.skip(str(error))
    base = ""
    try:
        base = make(url)
        yield url, base
    finally:
        forget(url, base)
        running.__exit__(None, None, None)


def forget(url: str, base: str) -> None:
    """Remove what the test's images are known by from an engine that is not the test's own."""
    import docker

    client = docker.APIClient(base_url=url, version="auto", timeout=120)
    try:
        ours = f"{containers_image.NAME}:{containers_image.digest(ROOT, base)}"
        known = {tag for image in client.images() for tag in image["RepoTags"] or ()}
        for tag in known & {ours, base, f"{base.partition(':')[0]}:imported"}:
            client.remove_image(tag, force=True)
    finally:
        client.close()


@contextmanager
def evaluation(engine: tuple[str, str], folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run `harness eval --containers`."""
    url, base = engine
    asked = ["eval", "--model", "scripted/oracle", "--env", PLAYED, "--containers", "--set", f"containers.base={base}"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from harness.cli import main; main()", *asked, "--out", str(folder), *more],
        cwd=folder.parent,
        env={**os.environ, "DOCKER_HOST": url, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def left(url: str) -> list[str]:
    """Return the names of what runs of ours have in the engine."""
    import docker

    client = docker.APIClient(base_url=url, version="auto")
    try:
        ours = {"label": docker_owner.RUN}
        found = [one["Names"][0] for one in client.containers(all=True, filters=ours)]
        return [*found, *(one["Name"] for one in client.networks(filters=ours))]
    finally:
        client.close()


def wait_until_there(url: str, process: subprocess.Popen[str]) -> None:
    """Wait until a run has its controller, three workers and two networks."""
    until = time.monotonic() + SECONDS
    while len(left(url)) < 6:
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_environments_are_played_in_containers_that_nothing_is_left_of(
    docker_host: tuple[str, str], tmp_path: Path
) -> None:
    url = docker_host[0]
    with evaluation(docker_host, tmp_path / "first", "--limit", "2") as process:
        said = process.communicate(timeout=800)[1]  # the image is built
    assert process.returncode == 0, said
    assert left(url) == []
    run = runlog.read(tmp_path / "first")
    assert [record.score.value for record in run.newest().values()] == [1.0] * 6

    local = [sys.executable, "-c", "from harness.cli import main; main()", "eval", "--model", "scripted/oracle"]
    local += ["--env", PLAYED, "--limit", "2", "--out", str(tmp_path / "local")]
    subprocess.run(local, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=SECONDS)
    assert runlog.read(tmp_path / "local").header.fingerprints == run.header.fingerprints

    with evaluation(docker_host, tmp_path / "killed", "--limit", "2") as process:
        wait_until_there(url, process)
        process.kill()
        process.wait(SECONDS)
    assert len(left(url)) == 6

    with evaluation(docker_host, tmp_path / "interrupted", "--limit", "2") as process:
        until = time.monotonic() + SECONDS  # first it removes what the killed one left
        before = set(left(url))
        while before & set(left(url)):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        wait_until_there(url, process)
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)
    assert left(url) == []


def compose() -> list[str]:
    """Return the command that reads compose files; skips the test where there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    pytest.skip("neither the plugin 'docker compose' nor docker-compose is installed")


def of_project(url: str, project: str) -> dict[str, dict[str, Any]]:
    """Return the containers and networks that compose has in the engine for a project, by name."""
    import docker

    client = docker.APIClient(base_url=url, version="auto")
    try:
        ours = {"label": f"com.docker.compose.project={project}"}
        found = [client.inspect_container(one["Id"]) for one in client.containers(all=True, filters=ours)]
        return {one["Name"]: one for one in [*found, *client.networks(filters=ours)]}
    finally:
        client.close()


async def image_on(base: str) -> str:
    """Build the image, if the engine has it not, and return its name."""
    engine = await connect()
    try:
        await containers_image.find(engine, None, base, lambda _: None)
    finally:
        await engine.close()
    return f"{containers_image.NAME}:{containers_image.digest(ROOT, base)}"


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(900)
async def test_compose_brings_up_every_environment_and_takes_it_down(
    docker_host: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, base = docker_host
    monkeypatch.setenv("DOCKER_HOST", url)
    monkeypatch.setenv("HARNESS_IMAGE", await image_on(base))
    monkeypatch.setenv("HARNESS_PORT", str(port := free_port()))
    for party in ("CLIENT", "WORKER"):
        monkeypatch.setenv(f"HARNESS_{party}_TOKEN", party.lower() * 4)
    monkeypatch.setenv("HARNESS_CONTROLLER_TOKEN", "client" * 4)
    project, served = f"harness-test-{os.getpid()}", sorted({*names("envs")} - ON_HOST)
    command = [*compose(), "-p", project, "-f", str(IMAGES / "compose.yaml")]
    try:
        subprocess.run([*command, "up", "--detach"], check=True, timeout=2 * SECONDS)
        await registered(f"http://127.0.0.1:{port}", served)
        there = of_project(url, project)
        assert len(there) == len(served) + 3
        for container in (each for each in there.values() if "HostConfig" in each):
            assert container["Config"]["User"] == "10001:10001" and container["HostConfig"]["ReadonlyRootfs"] is True
        asked = ["eval", "--model", "scripted/oracle", "--env", ",".join(served), "--limit", "2"]
        asked += ["--controller", f"http://127.0.0.1:{port}", "--out", str(tmp_path / "run")]
        play = [sys.executable, "-c", "from harness.cli import main; main()", *asked]
        subprocess.run(play, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=SECONDS)
    finally:
        subprocess.run([*command, "down", "--timeout", "10"], check=True, timeout=SECONDS)
    values = [record.score.value for record in runlog.read(tmp_path / "run").newest().values()]
    assert values == [1.0] * 2 * len(served)
    assert of_project(url, project) == {}


async def registered(address: str, tasks: list[str]) -> None:
    """Wait until a controller has a worker for each task."""
    client, until = Caller(address, authorization=f"Bearer {os.environ['HARNESS_CLIENT_TOKEN']}"), time.monotonic()
    while sorted((heard := await client.ask("GET", "list_workers")).body) != tasks:
        assert heard.status == 200 and time.monotonic() < until + SECONDS, heard
        await asyncio.sleep(0.5)
    client.close()
