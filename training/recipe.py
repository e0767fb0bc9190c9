"""A recipe: all that a training run depends on, as one value read from TOML. An unknown key is refused.

`training/recipes/NAME.toml`, or a file of one's own; flags and `--set` lie above it. Its digest stands in every
checkpoint: another recipe does not take a run up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from harness.config import LocalOptions, Strict, convert, merge, read_toml
from harness.core import Count, Json, Natural, Seconds, canonical_json
from harness.core import digest as digest_of
from harness.errors import SetupError, nearest
from harness.models.sampler import Kind
from training import aggregation, credit, curriculum, learner
from training.aggregation import Aggregation
from training.cluster import ClusterOptions
from training.collect import CollectOptions
from training.copying import CopyingOptions
from training.credit.tan import FLOORS, Floors
from training.curriculum import CurriculumOptions
from training.learner.options import LearnerOptions, Positive
from training.policies import PoolOptions
from training.process.options import TOGETHER, ProcessOptions
from training.record import LogOptions
from training.values import Gold
from training.warmstart import WarmStartOptions

FOLDER = Path(__file__).with_name("recipes")
NONE = "none"
NOTE = "recipe.json"
"""The resolved recipe, in a run's folder."""


class BeginOptions(Strict, frozen=True, kw_only=True):
    """What the run begins with."""

    model: str | None = None
    """Folder of a model; None makes one (`shape`)."""
    shape: str = "tiny"
    tasks: Count | Mapping[str, Count] = 500
    """Train tasks whose gold play the model and its tokenizer are made of: of each environment, or environment -> how
    many of it."""
    envs: Mapping[str, Mapping[str, Json]] = {}
    """Environment -> settings of its gold play, laid over those that it is trained with: easier tasks, say."""
    more: tuple[Gold, ...] = ()
    """Gold play besides, its settings laid over those of its environment's: a little of what is rare or long among
    `tasks`, so that it was seen at all."""
    longest: Count = 2048
    """Tokens of a demonstration; longer ones are left out."""
    copying: CopyingOptions | None = None
    """A model that is made here learns to copy first; None leaves that out."""
    renamed: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of the gold play that is told in other words, see `training/renaming.py`."""
    warm_start: WarmStartOptions | None = WarmStartOptions()
    """None begins with the model as it is."""


class PtxOptions(Strict, frozen=True, kw_only=True):
    """Gold play learnt beside own play: `training/ptx.py`."""

    tasks: Mapping[str, Count]
    """Environment -> how many of its train tasks, the first ones, under the settings of the warm start's gold play."""
    sequences: Mapping[str, Count]
    """Environment -> how many of these plays an update learns, shared out among its mini-batches."""
    coefficient: Positive = 0.3
    """γ: what their mean log-likelihood a token weighs beside the policy loss."""


class ScoreOptions(Strict, frozen=True, kw_only=True):
    """How checkpoints are scored on the way."""

    every: Count = 10
    """Updates between two evaluations."""
    tasks: Count = 60
    """Of each environment."""
    temperature: float = 0.0
    validation: str = "validation"
    """The split that is played on the way, by which the best checkpoint is chosen."""
    test: str = "test"
    """The split that is played once at the end, and by nothing that chooses anything."""
    test_tasks: Natural = 200
    """Of each environment's test split, played by the warm start, the last and the best; 0 leaves that out."""
    seconds: Seconds = 3600.0
    """Deadline of one evaluation."""


class Recipe(Strict, frozen=True, kw_only=True):
    """A training run."""

    name: str
    envs: Mapping[str, Mapping[str, Json]]
    """Environment -> its settings."""
    steps: Count
    """Updates."""
    groups: Count = 32
    """B: groups of one update."""
    eta: int = 2
    """How many versions collection may run ahead of the learner; 0 is synchronous."""
    running: Count = 128
    """Groups under way at once."""
    seed: int = 0
    """Of all that is drawn; the seeds of parts are added to it."""
    backend: Literal["torch", "deepspeed"] = "torch"
    ranks: Count = 1
    """Processes that the learner is spread over."""
    credit: str = "grpo"
    tan: Floors | None = FLOORS
    """Floors of the task advantage normalisation; None leaves it out."""
    negative: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """What an advantage below 0 is multiplied by: less than 1 where much of what fails is long and says little."""
    imitation: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """What is added to the advantages of attempts that succeeded; groups that always succeeded are trained on then."""
    below: Count | None = None
    """Attempts of a group with an advantage below 0 that are trained on at most, by lot, weighing for the others; None
    trains on all."""
    aggregation: str = "task_mean"
    ptx: PtxOptions | None = None
    """Gold play learnt beside own play; None leaves it out."""
    checkpoint_every: Count = 10
    begin: BeginOptions = BeginOptions()
    collect: CollectOptions = CollectOptions()
    curriculum: CurriculumOptions = CurriculumOptions()
    pools: PoolOptions = PoolOptions()
    learner: LearnerOptions = LearnerOptions()
    sampler: Kind = "hf"
    """What computes the engines: transformers, or vLLM servers that are started for it."""
    engine: LocalOptions = LocalOptions()
    score: ScoreOptions = ScoreOptions()
    log: LogOptions = LogOptions()
    processes: ProcessOptions | bool = ProcessOptions()
    """What runs in a process of its own; false keeps all in one, true is the default."""
    cluster: ClusterOptions = ClusterOptions()
    """Where these processes are actors of a Ray cluster instead."""

    @property
    def gold(self) -> tuple[Gold, ...]:
        """What there is gold play of."""
        count = self.begin.tasks
        counts = dict.fromkeys(self.envs, count) if isinstance(count, int) else count
        return (
            *(Gold(env=name, tasks=counts[name], settings=self._gold_settings(name)) for name in self.envs),
            *(
                msgspec.structs.replace(more, settings={**self._gold_settings(more.env), **more.settings})
                for more in self.begin.more
            ),
        )

    @property
    def rehearsed(self) -> tuple[Gold, ...]:
        """What there is gold play of beside own play."""
        counts = {} if self.ptx is None else self.ptx.tasks
        return tuple(Gold(env=name, tasks=counts[name], settings=self._gold_settings(name)) for name in sorted(counts))

    def _gold_settings(self, env: str) -> Mapping[str, Json]:
        return {**self.envs[env], **self.begin.envs.get(env, {})}

    @property
    def shown(self) -> Mapping[str, int]:
        """Environment -> how many of its train tasks, the first ones, there is gold play of that is learnt."""
        learnt = (*(self.gold if self.begin.warm_start is not None else ()), *self.rehearsed)
        return {name: max(each.tasks for each in learnt if each.env == name) for name in {each.env for each in learnt}}

    @property
    def weigh(self) -> Aggregation:
        """How the losses of tokens make one number; `task_mean` gives environments the curriculum's shares of it."""
        shares = {name: self.curriculum.shares.get(name, 1.0) for name in self.envs}
        return aggregation.named(self.aggregation, shares=shares, longest=self.engine.context or aggregation.LONGEST)

    @property
    def learning(self) -> LearnerOptions:
        """How a batch changes the weights: by the run's seed, and a rate that falls knows how far it has to go."""
        falls = self.learner.schedule != "constant" and not self.learner.updates
        updates = self.steps if falls else self.learner.updates
        return msgspec.structs.replace(self.learner, updates=updates, seed=self.seed + self.learner.seed)

    @property
    def spread(self) -> ProcessOptions:
        """What runs in a process of its own."""
        if isinstance(self.processes, bool):
            return ProcessOptions() if self.processes else TOGETHER
        return self.processes


def names() -> list[str]:
    """Return the recipes there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str, above: Mapping[str, Any]) -> Recipe:
    """Return a recipe by name or file, with values laid over it. SetupError names the key that is unknown or wrong.

    TOML has no word for nothing: "none" is it, as in `tan = "none"`.
    """
    path = Path(name).expanduser() if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.is_file():
        raise SetupError(f"there is no recipe '{name}'{nearest(name, names())}")
    return made({"name": path.stem, **merge(read_toml(path), above)}, path.name)


def stored(folder: Path, above: Mapping[str, Any]) -> Recipe:
    """Return the recipe of a run, with values laid over it. SetupError where the folder holds no run."""
    path = folder / NOTE
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise SetupError(f"{folder} holds no training run: {path} cannot be read ({error})") from error
    return made(merge(found, above), str(path))


def made(values: Mapping[str, Any], where: str) -> Recipe:
    """Return a recipe of plain values, "none" standing for nothing. SetupError names the key that is wrong."""
    recipe = convert(Recipe, _nothing(values), where)
    if not recipe.envs:
        raise SetupError(f"{where}: envs names no environment to train on")
    _require_trained(recipe.begin.envs, "begin.envs", recipe, where)
    _require_trained([more.env for more in recipe.begin.more], "begin.more", recipe, where)
    if not isinstance(recipe.begin.tasks, int) and (odd := sorted(recipe.begin.tasks.keys() ^ recipe.envs.keys())):
        raise SetupError(f"{where}: begin.tasks and envs must name the same environments, and not '{odd[0]}' alone")
    if recipe.ptx is not None:
        _require_sense(recipe.ptx, recipe, where)
    curriculum.require_sense(recipe.curriculum, recipe.envs)
    learner.require_sense(recipe.backend, recipe.learner)
    if recipe.eta < 0:
        raise SetupError(f"{where}: eta must be 0 or more, not {recipe.eta}")
    credit.rule_of(recipe.credit)
    aggregation.named(recipe.aggregation)
    _require_learnable(recipe, where)
    return recipe


def _require_learnable(recipe: Recipe, where: str) -> None:
    """Refuse what would train on nothing, or on something else than was sampled. SetupError."""
    if recipe.collect.group_size < credit.LEAST:
        raise SetupError(f"{where}: collect.group_size must be {credit.LEAST} or more: attempts are compared")
    if (recipe.collect.params.top_p or 1.0) < 1:
        raise SetupError(
            f"{where}: collect.params.top_p must be 1: below, other probabilities are sampled than trained"
        )
    for name, bounds in (("band", recipe.learner.loss.band), ("veto", recipe.learner.loss.veto)):
        if bounds is not None and bounds[0] > bounds[1]:
            raise SetupError(f"{where}: learner.loss.{name} must rise, or nothing is between: not {list(bounds)}")
    if [each[0] for each in recipe.pools.schedule] != sorted({each[0] for each in recipe.pools.schedule}):
        raise SetupError(f"{where}: the versions of pools.schedule must rise")


def _require_trained(named: Iterable[str], key: str, recipe: Recipe, where: str) -> None:
    """Refuse a key that names an environment which is not trained on. SetupError."""
    if unknown := [name for name in named if name not in recipe.envs]:
        raise SetupError(f"{where}: {key} names '{unknown[0]}', which envs does not: add it, or leave it out")


def _require_sense(ptx: PtxOptions, recipe: Recipe, where: str) -> None:
    if odd := sorted(ptx.tasks.keys() ^ ptx.sequences.keys()):
        raise SetupError(f"{where}: ptx.tasks and ptx.sequences must name the same environments, not '{odd[0]}' alone")
    _require_trained(sorted(ptx.tasks), "ptx", recipe, where)
    if few := [name for name in sorted(ptx.tasks) if ptx.sequences[name] > ptx.tasks[name]]:
        raise SetupError(f"{where}: ptx.sequences asks for more plays of '{few[0]}' an update than ptx.tasks has")


def _nothing(values: Any) -> Any:
    """Return values with nothing where they say "none"."""
    if isinstance(values, Mapping):
        return {key: _nothing(value) for key, value in values.items()}
    return None if values == NONE else values


def digest(recipe: Recipe) -> str:
    """Return the digest of all that a run's weights depend on: not its length, its processes, its scores or its logs.

    Its length counts where a learning rate falls until the last update: given more of them, it would rise again. How
    much is computed at once, and where, counts where the last bits do.
    """
    learning, engine = recipe.learning, recipe.engine
    if not learning.deterministic:
        plain, local = LearnerOptions(), LocalOptions()
        learning = msgspec.structs.replace(
            learning, micro_tokens=plain.micro_tokens, checkpointing=plain.checkpointing, device=plain.device
        )
        engine = msgspec.structs.replace(engine, batch=local.batch, device=local.device, memory=local.memory)
    same = {"steps": 1, "processes": True, "score": ScoreOptions(), "log": LogOptions(), "learner": learning}
    values = msgspec.to_builtins(msgspec.structs.replace(recipe, engine=engine, **same))
    return digest_of({key: value for key, value in values.items() if key != "cluster"})


def text(recipe: Recipe) -> bytes:
    """Return a resolved recipe as JSON."""
    return msgspec.json.format(canonical_json(msgspec.to_builtins(recipe)), indent=2)
