"""One attempt to be played, as a value that can go to another process, and how it is played where it stands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from harness.core import Agent, Env, Limits, Model, SamplingParams, Task, Trajectory, Value
from harness.rollout import rollout


class Order(Value, frozen=True, kw_only=True):
    """An attempt to be played."""

    env: str
    task: Task
    params: SamplingParams
    limits: Limits
    entry: str
    epoch: int
    attempt: int
    seed: int


Play = Callable[[Order], Awaitable[Trajectory]]


def here(envs: Mapping[str, Env], agent: Agent, model: Model) -> Play:
    """Play on this event loop, by the rollout that evaluations have too; the environments are open."""

    async def play(order: Order) -> Trajectory:
        return await rollout(
            envs[order.env],
            agent,
            order.task,
            model=model,
            params=order.params,
            limits=order.limits,
            entry=order.entry,
            epoch=order.epoch,
            attempt=order.attempt,
            seed=order.seed,
        )

    return play
