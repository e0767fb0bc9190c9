"""The HTTP client under both providers' SDKs: answers bounded, deadlines set, nothing compressed, no redirect followed.

Imports httpx2, which the SDKs bring; so this module is imported inside functions only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from harness.models.faults import Fault, Kind

LARGEST_ANSWER = 32 * 2**20
"""Bytes of one answer that are read."""
CONNECT_SECONDS = 30.0


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends in a fault past the bound."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > LARGEST_ANSWER:
                raise Fault(Kind.HUGE, f"an answer of more than {LARGEST_ANSWER >> 20} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


async def _bound(response: httpx2.Response) -> None:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        # A few compressed bytes may unfold to any size, and we asked for none.
        raise Fault(Kind.GARBLED, f"the answer is compressed ({encoding}), though we accept no compression")
    body = response.stream
    if isinstance(body, httpx2.AsyncByteStream):
        response.stream = _Bounded(body)


def make_client(url: str, request_seconds: float, *, keepalive_seconds: float = 30.0) -> httpx2.AsyncClient:
    """Return an HTTP client for a server; how many calls run at once is the limiter's business, not the pool's."""
    return httpx2.AsyncClient(
        # A server on this machine is never behind the proxy that the environment names.
        trust_env=httpx2.URL(url).host not in ("localhost", "127.0.0.1", "::1"),
        timeout=httpx2.Timeout(request_seconds, connect=min(CONNECT_SECONDS, request_seconds)),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=keepalive_seconds),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_bound]},
        follow_redirects=False,
    )
