"""A Ray cluster for tests, of as many nodes as they ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.registry import ROOT


class Nodes:
    """A cluster in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "cluster.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.training.clustered"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env={**os.environ, "RAY_TMPDIR": str(folder), "RAY_raylet_start_wait_time_s": "120"},
            )  # fmt: skip
        self.address = self._done().split()[1]

    def order(self, what: str) -> None:
        """Add a node, or end one."""
        assert self._process.stdin
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        self._done()

    def close(self) -> None:
        """End the cluster."""
        self._process.communicate(timeout=60)

    def _done(self) -> str:
        assert self._process.stdout
        told = next((line for line in self._process.stdout if line.startswith("done")), "")
        assert told, self._log.read_text()[-2000:]
        return told
