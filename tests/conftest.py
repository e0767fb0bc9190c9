"""What every test may ask for: the published data where it is at hand, and a tiny environment to play."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import cli

ROOT = Path(__file__).resolve().parent.parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script's background job ignores Ctrl-C, and so would the programs that tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Leave Ctrl-C as it was, also for the programs that later tests start, whatever a test runs in this process."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return what runs the command line in this process: words -> exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        return cli.run(cli.cli, words, "harness"), *capfd.readouterr()

    return call


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of published data beside the checkout, or skip."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the published data is not at {folder}")
    return folder


@pytest.fixture(scope="session")
def docker_settings() -> Iterator[dict[str, str]]:
    """Return the Docker sandbox's settings for a running engine with an image, or skip."""
    from tests.docker_daemon import engine, machine_image  # needs the SDK, which is an extra

    running = engine()
    try:
        url = running.__enter__()
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        with machine_image(url) as image:
            yield {"host": url, "image": image}
    finally:
        running.__exit__(None, None, None)
