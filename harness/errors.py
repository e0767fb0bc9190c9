"""The error tree, and the one place that classifies an exception by the boundary it crossed.

    HarnessError
    ├── SetupError            one sentence to the person, exit code 2, no traceback
    └── RolloutError          one attempt went wrong; data, never a crash of the run
        ├── ModelError        the provider failed, after all retries
        │   └── AccountError  and no further call can succeed: a key revoked, no credit left
        ├── AgentError        the agent's own code failed: the agent's doing
        ├── EnvError          the environment failed
        │   ├── SandboxError  the container, database or process under it failed
    │   └── LostError     whoever runs it elsewhere went away: never charged to the agent
        └── GraderError       the grader failed
    StorageError              the run folder cannot be written; what is finished is intact
    ToolError                 raised by an environment's tool, shown to the model as the tool's answer
    OutOfContext              the prompt no longer fits the model: the agent's doing

Errors are named after the listener: a person, the run log, or the model.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class HarnessError(Exception):
    """Base of every error that this project raises on purpose."""


class SetupError(HarnessError):
    """The person asked for something that cannot be done; the message names the input and the remedy."""


class RolloutError(HarnessError):
    """One attempt failed at one boundary."""

    boundary = "rollout"


class ModelError(RolloutError):
    """The model's provider gave no usable answer, after every retry."""

    boundary = "model"


class AccountError(ModelError):
    """The provider refuses the account: every further call would fail alike, so the run stops."""

    boundary = "account"


class AgentError(RolloutError):
    """The agent's own code failed."""

    boundary = "agent"


class EnvError(RolloutError):
    """The environment failed."""

    boundary = "env"


class SandboxError(EnvError):
    """The container, database or process under an environment failed."""

    boundary = "sandbox"


class LostError(EnvError):
    """The service that runs the environment went away, or does not keep to its protocol: never charged to the agent."""

    boundary = "service"


class GraderError(RolloutError):
    """The grader failed."""

    boundary = "grader"


class StorageError(HarnessError):
    """The run folder cannot be written (a full disk, for one): the run stops, and what is finished is intact."""


class ToolError(HarnessError):
    """A tool refuses or fails: its message is the tool's answer to the model."""


class OutOfContext(HarnessError):  # noqa: N818 - a limit reached, not a failure
    """The conversation is longer than the model's context: the agent's doing, so not a `ModelError`."""


@contextmanager
def boundary(kind: type[RolloutError], what: str) -> Iterator[None]:
    """Turn any exception raised inside into `kind`, saying `what` was being done.

    Errors that already carry a class of this tree pass through unchanged, as do cancellation and interrupts.
    """
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {error}") from error


def nearest(wanted: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x' or 'y'?" for the names nearest to `wanted`, or a list of what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    if close:
        return "; did you mean " + " or ".join(f"'{name}'" for name in close) + "?"
    return "; there is " + ", ".join(names[:20]) if names else ""
