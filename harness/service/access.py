"""Who may ask what: tokens, the Host and Origin of a request, the addresses that workers may register.

Decided here: on a loopback address anybody on this machine may ask, but no web page may make them (Host and Origin are
checked); on any other address two tokens are needed, one for clients and one for workers. A token comes as a bearer
header or, since AgentRL's own clients send none, as a path prefix `/t/TOKEN`.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal
from urllib.parse import urlsplit

from harness.errors import SetupError
from harness.service.protocol import Refused
from harness.service.settings import AccessSettings

PREFIX = "/t/"
SHORTEST_TOKEN = 16
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
CLIENT_TOKEN = "HARNESS_CLIENT_TOKEN"  # noqa: S105 - the name of a variable
WORKER_TOKEN = "HARNESS_WORKER_TOKEN"  # noqa: S105 - the name of a variable

Party = Literal["client", "worker"]
Headers = Mapping[str, str]


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's own, by name or address; no name is looked up."""
    if host in LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_settings(host: str, settings: AccessSettings, needed: Iterable[Party]) -> None:
    """Refuse (SetupError) to listen where anybody could ask, and tokens that are equal or can be guessed."""
    tokens = {"client": (settings.client_token, CLIENT_TOKEN), "worker": (settings.worker_token, WORKER_TOKEN)}
    for party in needed:
        token, variable = tokens[party]
        if token is None and not is_loopback(host):
            raise SetupError(
                f"listening on {host}, which others can reach, needs a {party} token: put one of "
                f"{SHORTEST_TOKEN} characters or more into {variable}"
            )
    for token, variable in tokens.values():
        if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or "/" in token):
            raise SetupError(f"{variable} must have {SHORTEST_TOKEN} or more characters, in ASCII and without '/'")
    if settings.client_token and settings.client_token == settings.worker_token:
        raise SetupError(f"{CLIENT_TOKEN} and {WORKER_TOKEN} are equal: clients and workers need one each")


def worker_allowed(settings: AccessSettings, placed: Collection[str] = ()) -> Callable[[str], bool]:
    """Return the check of a worker's address: its host is this machine's own, on the list, or where we placed one."""
    networks = []
    for name in settings.allow_workers:
        try:
            networks.append(ipaddress.ip_network(name, strict=False))
        except ValueError:
            continue

    def allowed(address: str) -> bool:
        if not is_address(address):
            return False
        host = urlsplit(address).hostname or ""
        if is_loopback(host) or host in settings.allow_workers or host in placed:
            return True
        try:
            return any(ipaddress.ip_address(host) in network for network in networks)
        except ValueError:
            return False

    return allowed


def is_address(text: str) -> bool:
    """Whether a text is the address of an API: a host and port over HTTP, without a user, a query or anything odd."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    odd = parts.username or parts.fragment or parts.query or not text.isascii() or not text.isprintable() or " " in text
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0 and not odd


def split_token(path: str) -> tuple[str | None, str]:
    """Return the token in a path and the path behind it: `/t/TOKEN/api/cancel` -> TOKEN, `/api/cancel`."""
    if not path.startswith(PREFIX):
        return None, path
    token, slash, rest = path[len(PREFIX) :].partition("/")
    return token, slash + rest


class Guard:
    """Decides about a request before anything of it is read."""

    def __init__(self, host: str, settings: AccessSettings) -> None:
        self._local = is_loopback(host)
        self._client = settings.client_token
        self._worker = settings.worker_token

    def check(self, party: Party, token: str | None, headers: Headers) -> None:
        """Refuse a request that `party` would not make."""
        self._check_origin(headers)
        wanted = self._client if party == "client" else self._worker
        if wanted is None:
            return
        given = _bearer(headers) if token is None else token
        if given is None or not hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode()):
            raise Refused(401, f"a {party} token is needed, as a bearer or in the path: /t/TOKEN/api")

    def _check_origin(self, headers: Headers) -> None:
        """Refuse what a web page elsewhere makes a browser ask."""
        host = headers.get("host", "")
        if self._local and not is_loopback(_host_name(host)):
            raise Refused(403, "the Host of the request is not this machine's own")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refused(403, "the Origin of the request is another site")


def _bearer(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def _host_name(host: str) -> str:
    """Return a Host header's name without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def from_environment(name: str | None, usual: str) -> str | None:
    """Return the token in a variable. SetupError where the variable that was named is not set."""
    value = os.environ.get(name or usual) or None
    if name is not None and value is None:
        raise SetupError(f"the variable {name} is not set: put the token into it")
    return value
