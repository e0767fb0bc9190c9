"""Processes that end with the one that started them, however that ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

LOOK_SECONDS = 0.5
GRACE_SECONDS = 15.0
"""How long a process may take to give back what it holds, once its owner is gone."""


def end_with(parent: int, stop: Callable[[], object]) -> None:
    """Watch the process that started this one, from a thread: when it is gone call `stop`, and soon after end."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_SECONDS)
        stop()
        time.sleep(GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="owner").start()


def memory_bytes() -> int:
    """Return the memory that this process holds; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
