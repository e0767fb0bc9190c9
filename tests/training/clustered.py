"""A Ray cluster of several nodes on this machine: `python -m tests.training.clustered`; its files are in $RAY_TMPDIR.

It prints its address. Then each line that it reads adds a node of so many CPUs (`add 2`) or ends, without grace, the
node that an actor's process is on (`end PID`). It ends with its input.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

TRIES = 3
STORE = 100_000_000
"""Bytes of a node's object store."""


def raylet_of(node: Any) -> int:
    """Return the process that starts a node's workers."""
    return node.all_processes["raylet"][0].process.pid


def parent_of(pid: int) -> int:
    """Return a process's parent."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))


if __name__ == "__main__":
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    for left in reversed(range(TRIES)):
        try:
            cluster = Cluster(initialize_head=True, head_node_args=head)
            break
        except Exception:  # a busy machine: Ray waits for a node for half a minute, and cannot be told otherwise
            if not left:
                raise
    nodes = []
    try:
        print(f"done {cluster.address}", flush=True)
        for line in sys.stdin:
            what, number = line.split()
            if what == "add":
                nodes.append(cluster.add_node(num_cpus=int(number), object_store_memory=STORE))
            else:
                own = next(node for node in nodes if raylet_of(node) == parent_of(int(number)))
                cluster.remove_node(own, allow_graceful=False)
            print("done", flush=True)
    finally:
        cluster.shutdown()
