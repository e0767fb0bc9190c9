"""What crosses between a parent and its child: frames of eight bytes of length and a pickled value.

Decided here: an error of this project's own classes stays one, sentence and all; a refusal of the operating system
stays an OSError with its number; anything else is a defect, and takes its traceback along as a note.
"""

from __future__ import annotations

import asyncio
import pickle
import traceback
from typing import Any, NamedTuple

from harness import errors

LENGTH = 8
MOST_BYTES = 1 << 34
"""Of one frame: more is no batch, it is a wire out of step."""


class Call(NamedTuple):
    """Parent to child: call a method. An empty method asks for a sign of life; None calls the number off."""

    number: int
    method: str | None
    arguments: tuple[Any, ...] = ()


class Answer(NamedTuple):
    """Child to parent."""

    number: int
    value: Any
    fault: Fault | None = None


class Fault(NamedTuple):
    """An exception, as it crosses."""

    kind: str
    text: str
    number: int | None
    """Of an OSError."""
    trace: str


def frame(value: Any) -> bytes:
    """Return a value as one frame."""
    data = pickle.dumps(value, protocol=5)
    return len(data).to_bytes(LENGTH, "big") + data


async def read(reader: asyncio.StreamReader) -> Any:
    """Return the next frame's value. EOFError where there is none to come."""
    length = int.from_bytes(await reader.readexactly(LENGTH), "big")
    if length > MOST_BYTES:
        raise EOFError(f"a frame of {length} bytes")
    return pickle.loads(await reader.readexactly(length))  # noqa: S301 - our own other end


def fault_of(error: BaseException) -> Fault:
    """Return an exception as it crosses."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, OSError):
        return Fault(type(error).__name__, error.strerror or str(error), error.errno, trace)
    return Fault(type(error).__name__, str(error), None, trace)


def error_of(fault: Fault, who: str) -> Exception:
    """Return the exception that a fault was, to be raised on this side."""
    kind = getattr(errors, fault.kind, None)
    if isinstance(kind, type) and issubclass(kind, errors.HarnessError):
        return kind(fault.text)
    if fault.number is not None:
        return OSError(fault.number, fault.text)
    error = RuntimeError(f"{fault.kind} in {who}: {fault.text}")
    error.add_note(fault.trace)
    return error
