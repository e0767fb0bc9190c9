"""Whether a controller or a worker in this container is well: `python -m harness.service.health`, for its engine.

Decided here: it asks the port that this image's commands listen on, with the token that they have; exit code 0 is well.
A worker is well when its environment says so.
"""

from __future__ import annotations

import http.client
import json
import os
import sys

from harness.service.access import CLIENT_TOKEN, WORKER_TOKEN
from harness.service.settings import PORT

SECONDS = 5.0
WORKER_PORT = PORT + 1


def main() -> int:
    """Ask the worker's port and, where nobody listens there, the controller's; return the exit code."""
    for port, path, variable in (
        (WORKER_PORT, "/api/healthy", WORKER_TOKEN),
        (PORT, "/api/version", CLIENT_TOKEN),
    ):
        try:
            return 0 if _well(port, path, os.environ.get(variable)) else 1
        except ConnectionRefusedError:
            continue
        except (OSError, http.client.HTTPException, ValueError):
            return 1
    return 1


def _well(port: int, path: str, token: str | None) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        reply = connection.getresponse()
        said = json.loads(reply.read())
        return reply.status == 200 and isinstance(said, dict) and said.get("healthy", True) is True
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
