"""The experiments, as one table: which question, which arms, which seeds, and what is compared with what.

Decided here, before anything is run: the seeds (three for `tiny`, five for every other, one of its own for the sweep);
that each seed of `tiny` makes a warm start of its own, and all seeds of `micro` begin with one, so that what is said of
those is said of what comes after that warm start; that an arm differs from its recipe in nothing but what stands beside
it; that greedy play is what is claimed about in `tiny`, with play at temperature 1 beside it, and in the ablations play
at temperature 1, as it is trained; that the controls' learning rates are chosen on validation, on a seed that is used
nowhere else. A run is known by what it does and not by the experiment that asks for it, so arms that are alike are run
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from harness.config import merge
from harness.core import Value
from harness.errors import SetupError, nearest
from harness.metrics import Measure

Kind = Literal["warm", "train", "sft", "rejection", "iteration", "sample"]
THREE, FIVE, TUNING, WARMED = (39, 40, 41), (21, 22, 23, 24, 25), (91,), 20
SWEEP_SECONDS = {"tiny": 430.0, "micro": 130.0}
"""About what GRPO takes."""


class Arm(Value, frozen=True, kw_only=True):
    """One way to go on from the warm start."""

    name: str
    kind: Kind = "train"
    above: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What is laid over the recipe; None leaves a part out."""
    seconds: float | None = None
    """Of training, of a control."""
    played: float | None = None
    """Share of its seconds that rejection sampling plays; it learns in the rest."""
    seconds_of: str | None = None
    """The arm whose seconds of training this one has instead."""
    of: str | None = None
    """The arm whose run this one goes by: `train` repeats it as far as it had come after those seconds, `sample`
    samples from its weights and its warm start's."""
    best_of: tuple[str, ...] = ()
    """Arms of the sweep, of which the settings that were best on validation are taken."""
    sampled: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Of the kind `sample`: pool options that the weights of `of` are sampled with."""


class Experiment(Value, frozen=True, kw_only=True):
    """One question."""

    name: str
    asks: str
    arms: tuple[Arm, ...]
    against: tuple[tuple[str, str], ...] = ()
    """(arm, the arm that it is compared with)."""
    recipe: str = "micro"
    above: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Laid over the recipe in every arm."""
    seeds: tuple[int, ...] = FIVE
    warmed: int | None = WARMED
    """The seed of the one warm start that all begin with; None makes one for each."""
    split: Literal["test", "validation"] = "test"
    """Which of the two splits that its recipe names."""
    tasks: int = 100
    """Of each environment."""
    temperatures: tuple[float, ...] = (1.0,)
    """The first is the one that is claimed about."""
    measures: tuple[Measure, ...] = ("success",)
    """What is compared: environments that pay in part say more by their rewards."""
    epochs: int = 1
    """Attempts of `sample` at each task, at temperature 1; k of pass@k goes up to it."""
    by_env: bool = False
    """Draw the validation curve of each environment too."""
    minutes: float = 5.0
    """One run with its scoring takes about so long, as long as none was measured."""
    warm_minutes: float = 17.0
    """Likewise a warm start."""
    after: tuple[str, ...] = ()
    """Experiments that must be done before."""

    def arm(self, name: str) -> Arm:
        """Return an arm by name. SetupError names the nearest."""
        found = next((arm for arm in self.arms if arm.name == name), None)
        if found is None:
            names = [arm.name for arm in self.arms]
            raise SetupError(f"experiment {self.name} has no arm '{name}'{nearest(name, names)}")
        return found


def _over(*layers: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for layer in layers:
        found = merge(found, layer)
    return found


def _lag(eta: int) -> dict[str, Any]:
    """Let data really be `eta` versions old: as many groups are under way at once as are admitted."""
    return {"eta": eta, "running": 1024}


def _refreshed(interval: int | None, **further: Any) -> dict[str, Any]:
    """Let the stale pool follow every so many updates, or never."""
    return {"pools": {"stale_interval": interval, **further}}


WARM = Arm(name="warm start", kind="warm")
PLAIN = Arm(name="as the recipe")
NO_TAN: dict[str, Any] = {"tan": None}
TAN: dict[str, Any] = {"tan": {}}
TASKS: dict[str, Any] = {"aggregation": "task_mean"}
TOKENS: dict[str, Any] = {"aggregation": "token_mean"}
ONE_POLICY: dict[str, Any] = {"pools": {"depth": 0, "stale_ratio": 0.0}}
ALFWORLD: dict[str, Any] = {"difficulty": 0.0, "gold": "searching"}
KG: dict[str, Any] = {"difficulty": 0.0, "breadth": 36}
WEBSHOP: dict[str, Any] = {"difficulty": 0.0}
TWO_ENVS: dict[str, Any] = {
    "envs": {"alfworld": ALFWORLD, "kg": KG},
    "begin": {"tasks": {"alfworld": 3000, "kg": 4000}},
}
GRPO = Arm(name="GRPO")
SFT_RATES = (3e-4, 1e-3, 3e-3)
PLAYED: dict[Kind, dict[float | None, tuple[float, ...]]] = {
    "rejection": {0.9: (1e-3,), 0.8: SFT_RATES},
    "sft": {None: (*SFT_RATES[1:], 1e-2)},
    "iteration": {None: SFT_RATES},
}
"""Kind of control -> shares of its seconds that are play -> learning rates, about those that were best before, of
recipes that were tuned (docs/findings.md)."""
CONTROLS: dict[Kind, str] = {
    "rejection": "rejection-sampled SFT",
    "sft": "continued SFT",
    "iteration": "expert iteration",
}
GROUPS: dict[str, Any] = {"curriculum": {"over": "groups"}}
THREE_ENVS: dict[str, Any] = {
    "envs": {"alfworld": ALFWORLD, "kg": KG, "webshop": WEBSHOP},
    "begin": {"tasks": {"alfworld": 2000, "kg": 4000, "webshop": 1000}},
    "curriculum": {"horizon": {"alfworld": [[0, 20]], "webshop": [[0, 8]]}},
    "credit": "dr_grpo",
}
"""WebShop's rewards are parts of 1, and advantages of `dr_grpo` keep the rewards' scale: TAN has something to do. Its
gold play takes four turns, ALFWorld's attempts are as long as in `tiny`. That rewards are compared too was decided when
one seed had been run and its successes been seen: of WebShop's tasks hardly any is solved whole."""


def _rates(kind: Kind, recipe: str = "tiny") -> tuple[Arm, ...]:
    return tuple(
        Arm(
            name=f"{kind} {rate:g}" + (f", {share:.0%} play" if share else ""),
            kind=kind,
            above={"learner": {"lr": rate}},
            seconds=SWEEP_SECONDS[recipe],
            played=share,
        )
        for share, rates in PLAYED[kind].items()
        for rate in rates
    )


def _sweep(name: str, *kinds: Kind, recipe: str = "tiny", **changed: Any) -> Experiment:
    return Experiment(
        name=name,
        asks=f"Which learning rate of {' and of '.join(CONTROLS[kind] for kind in kinds)} is best on validation"
        + (", and how long should it play" if "rejection" in kinds else "")
        + "? GRPO has its recipe's rate.",
        recipe=recipe,
        arms=tuple(arm for kind in kinds for arm in _rates(kind, recipe)),
        seeds=TUNING,
        split="validation",
        **changed,
    )


def _beside(grpo: Arm, *kinds: Kind, **changed: Any) -> Experiment:
    """Return an experiment of GRPO, its warm start, and controls that have GRPO's seconds and a sweep's settings."""
    controls = tuple(
        Arm(name=CONTROLS[kind], kind=kind, seconds_of=grpo.name, best_of=tuple(arm.name for arm in _rates(kind)))
        for kind in kinds
    )
    against = tuple((grpo.name, arm.name) for arm in (WARM, *controls))
    return Experiment(arms=(WARM, grpo, *controls), against=against, **changed)


EXPERIMENTS: tuple[Experiment, ...] = (
    _sweep("sweep", "rejection", "sft", warmed=None, temperatures=(0.0, 1.0), minutes=6.5),
    _beside(
        GRPO,
        "rejection",
        "sft",
        name="tiny",
        asks="Does GRPO beat its own warm start, and what the same seconds bring by more supervised learning: on "
        "further gold play, and on the model's own play that succeeded?",
        recipe="tiny",
        seeds=THREE,
        warmed=None,
        temperatures=(0.0, 1.0),
        tasks=200,
        minutes=8.0,
        after=("sweep",),
    ),
    Experiment(
        name="async",
        asks="What does asynchrony cost at equal samples, and what does it bring at equal time?",
        arms=(
            WARM,
            PLAIN,
            Arm(name="synchronous", above={"eta": 0}),
            Arm(
                name="synchronous, equal time",
                above={"eta": 0},
                of="synchronous",
                seconds_of=PLAIN.name,
            ),
        ),
        against=((PLAIN.name, "synchronous"), (PLAIN.name, "synchronous, equal time"), (PLAIN.name, WARM.name)),
    ),
    Experiment(
        name="cross_policy",
        asks="Is it better to draw a quarter of the attempts from an older policy, or of the turns, as AgentRL does?",
        arms=(
            PLAIN,
            Arm(name="one policy", above=ONE_POLICY),
            Arm(name="by turns", above={"pools": {"scope": "turn"}}),
        ),
        against=((PLAIN.name, "one policy"), ("by turns", "one policy")),
    ),
    Experiment(
        name="normalisation",
        above=TWO_ENVS,
        by_env=True,
        asks="Two environments of unequal difficulty: what do task advantage normalisation and task_mean bring, alone "
        "and together?",
        arms=(
            Arm(name="TAN, task_mean", above=_over(TAN, TASKS)),
            Arm(name="no TAN, task_mean", above=_over(NO_TAN, TASKS)),
            Arm(name="TAN, token_mean", above=_over(TAN, TOKENS)),
            Arm(name="no TAN, token_mean", above=_over(NO_TAN, TOKENS)),
        ),
        against=(
            ("TAN, task_mean", "no TAN, task_mean"),
            ("TAN, task_mean", "TAN, token_mean"),
            ("TAN, task_mean", "no TAN, token_mean"),
        ),
    ),
    Experiment(
        name="corrections",
        asks="Which off-policy correction holds as data gets older?",
        arms=tuple(
            Arm(
                name=f"{correction}, η {eta}", above=_over({"learner": {"loss": {"correction": correction}}}, _lag(eta))
            )
            for eta in (0, 2, 8)
            for correction in ("tis", "decoupled", "bypass")
        ),
        against=tuple(
            (f"tis, η {eta}", f"{correction}, η {eta}") for eta in (0, 2, 8) for correction in ("decoupled", "bypass")
        )
        + tuple((f"{correction}, η 8", f"{correction}, η 0") for correction in ("tis", "decoupled", "bypass")),
    ),
    Experiment(
        name="stale_interval",
        asks="How often should the stale pool be refreshed, by throughput and by success?",
        arms=(
            PLAIN,
            *(
                Arm(name=f"every {interval}" if interval else "never", above=_refreshed(interval))
                for interval in (2, 10, None)
            ),
        ),
        against=tuple((name, PLAIN.name) for name in ("every 2", "every 10", "never")),
    ),
    Experiment(
        name="stale_kl",
        asks="How far apart may the fresh and the stale policy be before training becomes unstable? Each run is one "
        "point: the mean KL of the stale pool's tokens against the ESS, the gradient's unrest and success.",
        arms=(
            PLAIN,
            *(
                Arm(
                    name=f"ratio {ratio:g}, {'never refreshed' if interval is None else f'every {interval}'}",
                    above=_refreshed(interval, **further),
                )
                # A quarter is the recipe's own: unsaid, these are the runs of stale_interval.
                for ratio, further, intervals in ((0.25, {}, (2, 10, None)), (0.5, {"stale_ratio": 0.5}, (10, None)))
                for interval in intervals
            ),
        ),
        against=(("ratio 0.5, never refreshed", PLAIN.name), ("ratio 0.5, every 10", PLAIN.name)),
    ),
    Experiment(
        name="three_tasks",
        asks="Three environments of unequal difficulty and scale of reward: what do task advantage normalisation and "
        "shares of the tokens bring?",
        above=THREE_ENVS,
        measures=("success", "reward"),
        by_env=True,
        arms=(
            Arm(name="TAN, token shares", above=_over(TAN, TASKS)),
            Arm(name="no TAN, token shares", above=_over(NO_TAN, TASKS)),
            Arm(name="TAN, no shares", above=_over(TAN, GROUPS, TOKENS)),
            Arm(name="no TAN, no shares", above=_over(NO_TAN, GROUPS, TOKENS)),
        ),
        against=tuple(
            ("TAN, token shares", name) for name in ("no TAN, token shares", "TAN, no shares", "no TAN, no shares")
        ),
        minutes=7.0,
    ),
    Experiment(
        name="pass_at_k",
        asks="KG: does a mixture of the trained policy and of its warm start, drawn turn by turn, solve more tasks in "
        "k tries than either alone?",
        arms=(
            PLAIN,
            *(
                Arm(name=name, kind="sample", of=PLAIN.name, sampled={"stale_ratio": ratio})
                for name, ratio in (
                    ("trained alone", 0.0),
                    ("mixed 3:1", 0.25),
                    ("mixed 1:1", 0.5),
                    ("warm start alone", 1.0),
                )
            ),
        ),
        against=(("mixed 3:1", "trained alone"), ("mixed 1:1", "trained alone"), ("mixed 1:1", "warm start alone")),
        epochs=8,
        minutes=5.0,
    ),
    Experiment(
        name="weighting",
        asks="Should the stale share follow the ESS, or each pool's recent advantage, instead of staying as it is?",
        arms=(
            PLAIN,
            Arm(name="ess", above={"pools": {"weighting": "ess"}}),
            Arm(name="bandit", above={"pools": {"weighting": "bandit"}}),
        ),
        against=(("ess", PLAIN.name), ("bandit", PLAIN.name)),
    ),
    _sweep("iteration_sweep", "iteration", recipe="micro"),
    _beside(
        PLAIN,
        "iteration",
        name="iteration",
        asks="Does GRPO beat what the same seconds bring by learning own play that succeeded and playing on with it, "
        "again and again: reinforcement learning without failures?",
        after=("iteration_sweep",),
    ),
)

_SMALL: dict[str, Any] = {
    "envs": {"db": {}},
    "begin": {"shape": "nano", "tasks": 16, "copying": None, "warm_start": {"seconds": 3.0, "epochs": 1}},
    "groups": 2,
    "running": 4,
    "checkpoint_every": 1,
    "collect": {"group_size": 2, "limits": {"turns": 2}},
    "engine": {"answer_tokens": 8},
    "score": {"every": 50, "tasks": 2, "validation": "validation", "test": "test"},
    "processes": False,
}
SMOKE: tuple[Experiment, ...] = (
    Experiment(
        name="smoke",
        asks="Does all of it work? Two updates of a model of nothing; the figures mean nothing.",
        recipe="micro",
        above=_over(_SMALL, {"steps": 2}),
        arms=(
            WARM,
            PLAIN,
            *(
                Arm(name=name, kind=kind, seconds_of=PLAIN.name, played=next(iter(PLAYED[kind])))
                for kind, name in CONTROLS.items()
            ),
            Arm(name="mixed", kind="sample", of=PLAIN.name, sampled={"stale_ratio": 0.5}),
        ),
        against=((PLAIN.name, WARM.name), (PLAIN.name, "continued SFT")),
        seeds=(1, 2),
        warmed=None,
        tasks=4,
        temperatures=(1.0,),
        epochs=2,
        minutes=0.3,
        warm_minutes=0.3,
    ),
)


def named(name: str, table: Sequence[Experiment] = EXPERIMENTS) -> Experiment:
    """Return an experiment. SetupError names the nearest."""
    found = next((each for each in table if each.name == name), None)
    if found is None:
        raise SetupError(f"there is no experiment '{name}'{nearest(name, [each.name for each in table])}")
    return found
