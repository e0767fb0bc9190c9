"""Environments, a model and a learner of a simulation: they wait, and say what the loop must know of it.

Decided here: an episode's trace is drawn when its conversation is opened, under the seed that the collector gives it.
A reply says how long the environment will take and whether the episode ends with it; the session does as it is told.
Rewards of a group's attempts alternate, so that no group is filtered and all that is trained on is paid for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from benchmarks.simulation import costs
from benchmarks.simulation.traces import Place, Step, World, draw
from harness.core import (
    Json,
    Message,
    Observation,
    Policy,
    Reply,
    SamplingParams,
    Score,
    Task,
    Tokens,
    ToolSpec,
    Usage,
    make_task,
    seed_of,
)
from harness.errors import HarnessError
from harness.models.sampler import Request, Sampler
from training.values import Metrics, Sample

SEEN = Message(role="user", content="on")


class TracedEnv:
    """An environment whose steps take as long as the reply says."""

    turn_limit: int | None = None
    max_sessions: int | None = None

    def __init__(self, world: World, speed: float) -> None:
        self.name = world.name
        self._start_seconds = world.start_seconds / speed
        self._speed = speed

    def splits(self) -> Mapping[str, str]:
        """Return the one split."""
        return {"train": "endless"}

    def tasks(self, split: str) -> Iterator[Task]:
        """Yield tasks without end."""
        number = 0
        while True:
            yield make_task(
                f"{self.name}-{number}", env=self.name, split=split, group=self.name, instruction="", tools=(), data={}
            )
            number += 1

    def session(self, task: Task) -> TracedSession:
        """Return an episode."""
        return TracedSession(self._start_seconds, self._speed)

    def demonstrate(self, task: Task) -> Policy:
        """There is no gold play."""
        raise NotImplementedError

    def protocol(self, split: str) -> Mapping[str, Json]:
        """Return nothing: nothing is scored."""
        return {}

    async def open(self) -> None:
        """Nothing is shared."""

    async def close(self) -> None:
        """Nothing is left."""

    async def healthy(self) -> bool:
        """Say yes."""
        return True


class TracedSession:
    """One episode."""

    def __init__(self, start_seconds: float, speed: float) -> None:
        self._start_seconds = start_seconds
        self._speed = speed
        self._reward = 0.0

    async def __aenter__(self) -> Self:
        await asyncio.sleep(self._start_seconds)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing is left."""

    async def start(self) -> Observation:
        """Return an opening."""
        return Observation(messages=(SEEN,))

    async def step(self, message: Message) -> Observation:
        """Take as long as the reply says."""
        seconds, done, reward = message.content.split()
        await asyncio.sleep(float(seconds) / self._speed)
        self._reward = float(reward)
        return Observation(messages=(SEEN,), done=done == "end")

    async def score(self) -> Score:
        """Return what the last reply said."""
        return Score(value=self._reward)


class TracedModel:
    """A model that plays traces on an engine."""

    name = "traced"
    forks = 0

    def __init__(self, place: Place, sampler: Sampler) -> None:
        self._place = place
        self._worlds = {world.name: world for world in place.envs}
        self._sampler = sampler

    def open(self, episode: str, seed: int) -> TracedConversation:
        """Draw an episode."""
        task, _, attempt = episode.rpartition("/")
        world = self._worlds[task.partition("/")[2].rpartition("-")[0]]
        opening = max(1, round(world.opening_tokens / self._place.grain))
        reward = int(attempt.partition("#")[0]) % 2
        return TracedConversation(episode, seed, opening, draw(self._place, world, task, seed), reward, self._sampler)

    def protocol(self) -> Mapping[str, Json]:
        """Return nothing: nothing is scored."""
        return {}

    async def check(self, params: SamplingParams, *, tools: bool) -> None:
        """There is nothing to check."""

    async def close(self) -> None:
        """Nothing is left."""


class TracedConversation:
    """One episode's talk."""

    def __init__(
        self, episode: str, seed: int, opening: int, steps: Sequence[Step], reward: int, sampler: Sampler
    ) -> None:
        self._episode = episode
        self._seed = seed
        self._held = opening
        self._steps = steps
        self._reward = reward
        self._sampler = sampler
        self._turn = 0

    async def generate(self, messages: Sequence[Message], tools: Sequence[ToolSpec], params: SamplingParams) -> Reply:
        """Sample the next turn of the trace."""
        step, last = self._steps[self._turn], self._turn + 1 == len(self._steps)
        prompt = (0,) * self._held
        sampled = await self._sampler.sample(
            Request(
                episode=self._episode,
                prompt_ids=prompt,
                max_tokens=step.tokens,
                seed=seed_of(self._seed, self._turn),
            )
        )
        self._turn += 1
        self._held += step.tokens + step.seen
        tokens = Tokens(
            prompt_ids=prompt,
            sampled_ids=sampled.ids,
            logprobs=sampled.logprobs,
            versions=sampled.versions,
            mask=(True,) * len(sampled.ids),
            mixed_kv=(),
            engine=sampled.engine,
            temperature=1.0,
        )
        usage = Usage(input_tokens=len(prompt), output_tokens=len(sampled.ids), calls=1, seconds=sampled.seconds)
        content = f"{step.seconds!r} {'end' if last else 'on'} {self._reward}"
        return Reply(message=Message(role="assistant", content=content), usage=usage, finish="stop", tokens=tokens)

    async def close(self) -> None:
        """Let the engine forget the episode."""
        await self._sampler.release(self._episode)


class TracedLearner:
    """A learner that takes as long, and remembers what it was given."""

    def __init__(self, place: Place, gpus: int, *, switch_seconds: float, speed: float) -> None:
        self.busy = 0.0
        """Seconds in which it trained."""
        self.groups: list[tuple[int, ...]] = []
        """Ids of each update."""
        self.most_lag = 0
        """Versions that a token it trained on was behind."""
        self._place = place
        self._gpus = gpus
        self._token_seconds = costs.token_seconds(place.model, place.gpu, place.learner) / speed
        self._switch_seconds = switch_seconds / speed

    async def update(self, samples: Sequence[Sample], version: int, gold: Sequence[Sample] = ()) -> Metrics:
        """Take as long as an update takes."""
        place = self._place
        lengths = [len(sample.segment.ids) * place.grain for sample in samples]
        seconds = costs.update_seconds(lengths, place.minibatches, self._gpus, place.sequence_gpus, self._token_seconds)
        self.busy += seconds
        self.groups.append(tuple(sorted({sample.group_id for sample in samples})))
        lags = [version - int(each.segment.versions[each.kept].min()) for each in samples if each.kept.any()]
        self.most_lag = max([self.most_lag, *lags])
        await asyncio.sleep(seconds + self._switch_seconds)
        return {"tokens/trained": place.grain * sum(int(sample.kept.sum()) for sample in samples), "ess": 1.0}

    async def publish(self, root: Path, version: int) -> Path:
        """Return where the weights would be."""
        return root / f"v{version:06d}"

    async def save(self, folder: Path) -> None:
        """There is nothing to save."""

    async def load(self, folder: Path) -> None:
        """There is nothing to load."""

    async def gone(self) -> HarnessError:
        """Wait for ever."""
        never: asyncio.Future[HarnessError] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        """Nothing is left."""
