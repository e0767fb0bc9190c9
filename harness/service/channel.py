"""What a worker and the processes that play its sessions say to each other: msgpack behind its length."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeVar

import msgspec

from harness.core import Message, Task

MOST_BYTES = 64 << 20

Kind = TypeVar("Kind")


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """What a process is to do."""

    id: int
    do: Literal["start", "step", "cancel", "protocol", "healthy"]
    session_id: int = 0
    task: Task | None = None
    message: Message | None = None
    split: str = ""


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What came of it; id 0 says that the process is ready, or why it cannot be."""

    id: int
    body: bytes = b""
    finish: bool = False
    error: str = ""
    memory: int = 0
    """What the process holds, in bytes."""


_encode = msgspec.msgpack.Encoder().encode


async def receive(reader: asyncio.StreamReader, kind: type[Kind]) -> Kind | None:
    """Read one value; None where the other side has ended."""
    try:
        length = int.from_bytes(await reader.readexactly(4), "big")
        if length > MOST_BYTES:
            return None
        return msgspec.msgpack.decode(await reader.readexactly(length), type=kind)
    except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError):
        return None


def send(writer: asyncio.StreamWriter, value: Ask | Told) -> None:
    """Write one value."""
    frame = _encode(value)
    writer.write(len(frame).to_bytes(4, "big") + frame)
