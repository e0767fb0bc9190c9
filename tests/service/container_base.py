"""An image with this very Python, for the workers' image to be built on where no registry is reached."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docker_daemon import copy_packages

NAME = "agent-harness-test-base"
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
INDEX = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
LIBRARIES = ("libstdc++6", "libgcc-s1")
"""That wheels take for granted."""
LEFT_OUT = shutil.ignore_patterns("test", "tests", "__pycache__", "idlelib", "tkinter", "*.a", "site-packages", "share")


def make(url: str) -> str:
    """Import the image into the engine at an address; return its name."""
    import docker

    client = docker.APIClient(base_url=url, version="auto", timeout=120)
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name, (Path(name) / "root.tar").open("w+b") as archive:
            root = Path(name) / "root"
            copy_packages(root, *LIBRARIES)
            python = root / sys.base_prefix.lstrip("/")
            shutil.copytree(sys.base_prefix, python, symlinks=True, ignore=LEFT_OUT, dirs_exist_ok=True)
            for folder in (python, *python.parents[: len(python.relative_to(root).parts) - 1]):
                folder.chmod(0o755)  # a Python in somebody's home folder, which others may not enter
            trusted = os.environ.get("PIP_CERT") or ssl.get_default_verify_paths().cafile or AUTHORITIES
            (root / AUTHORITIES[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(trusted, root / AUTHORITIES[1:])
            subprocess.run(["tar", "--create", "--directory", root, "."], stdout=archive, check=True, timeout=120)
            variables = [f"{name}={os.environ[name]}" for name in INDEX if name in os.environ]
            variables += [f"PATH={sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin", f"PIP_CERT={AUTHORITIES}"]
            changes = [f"ENV {variable}" for variable in variables]
            told = client.import_image_from_file(archive.name, NAME, "imported", changes=changes)
            client.tag(json.loads(told.strip().splitlines()[-1])["status"], NAME, str(os.getpid()))
    finally:
        client.close()
    return f"{NAME}:{os.getpid()}"
