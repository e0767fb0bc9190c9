"""What nobody may learn from: the tasks of every split but `train`.

Decided here: a task is known by its digest, which is of its content, so that a record whose split was edited, or whose
task turns up in a train split too, is found all the same. The held-out tasks are made anew from the environments; where
that is not possible, nothing is let through.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from harness import registry
from harness.core import EnvOptions, Trajectory
from harness.errors import SetupError
from harness.runlog import Header

TRAIN = "train"
MOST_TASKS = 100_000
"""Of one split: held-out splits are finite."""


def digests(env: str, options: EnvOptions) -> frozenset[str]:
    """Return the digests of an environment's held-out tasks, in its own settings and in those given.

    Splits whose published data is not on this machine are passed over.

    Raises:
        SetupError: the environment cannot be made here.
    """
    found: set[str] = set()
    plain = EnvOptions(data=options.data)
    for each in (plain,) if options == plain else (plain, options):
        made = registry.make_env(env, each)
        for split in made.splits():
            if split.startswith(TRAIN):
                continue
            try:
                found.update(task.digest for task in islice(made.tasks(split), MOST_TASKS))
            except SetupError:  # its data is not fetched; the split's name still tells
                continue
    return frozenset(found)


def of_run(header: Header, entries: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return entry -> digests of the held-out tasks of its environment. SetupError where it cannot be made here."""
    envs = {entry.name: entry.env for entry in header.board.entries}
    known: dict[str, frozenset[str]] = {}
    for entry in entries:
        env = envs.get(entry)
        if env is None:
            raise SetupError(f"the run's board has no entry '{entry}', so its environment is not known: play it anew")
        if entry not in known:
            settings = header.config.env_settings.get(env, {})
            known[entry] = digests(env, EnvOptions(settings=settings))
    return known


def require_train(trajectory: Trajectory, header: Header, held_out: Mapping[str, frozenset[str]]) -> None:
    """Refuse play of a held-out task, by its own word, by its run's, or by its digest. SetupError says which."""
    who = f"{trajectory.env} task {trajectory.task_id}"
    asked = next((entry.split for entry in header.board.entries if entry.name == trajectory.entry), "")
    for split in (trajectory.split, asked):
        if not split.startswith(TRAIN):
            raise SetupError(
                f"{who} is of split '{split}', which no model may learn from: "
                "export play of a train split (harness eval --split train), or choose it with --split train"
            )
    if trajectory.digest in held_out.get(trajectory.entry, frozenset()):
        raise SetupError(
            f"{who} says that it is of split '{trajectory.split}', and its digest is that of a held-out task: "
            "no model may learn from it; leave that run out"
        )
