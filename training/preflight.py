"""What can be refused before a run makes anything: packages, the model, the environments, room.

Each refusal is one sentence that names what is wrong and what mends it.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from harness import registry
from harness.core import EnvOptions
from harness.errors import SetupError, nearest
from harness.models.local import load_tokenizer
from harness.models.vllm import launch
from training import budget, cluster, forecast, machine, record
from training.begin import own_base
from training.budget import DISK, Size
from training.learner import NEEDED
from training.process.engine import VLLM
from training.recipe import Recipe


def check(recipe: Recipe, folder: Path, *, resume: bool) -> None:
    """Refuse a run that is sure to fail. SetupError in one sentence; nothing was made."""
    require_envs(recipe)
    require_packages(recipe)
    cluster.require(recipe.cluster, recipe.spread)
    require_replicas(recipe)
    record.require(recipe.log)
    base = own_base(recipe, folder)
    size = budget.size_of(recipe, base)
    if recipe.begin.model is not None:
        load_tokenizer(budget.source(recipe.begin.model, base))
    require_room(recipe, size, folder, resume=resume)


def require_envs(recipe: Recipe) -> None:
    """Refuse an environment, or a setting of one, that there is not, for training or for gold play."""
    for name, settings in recipe.envs.items():
        env = registry.make_env(name, EnvOptions(settings=settings))
        splits = env.splits()
        if recipe.collect.split not in splits:
            raise SetupError(f"{name} has no split '{recipe.collect.split}' to train on: leave {name} out")
        tested = {"test": recipe.score.test} if recipe.score.test_tasks else {}
        for key, split in {"validation": recipe.score.validation, **tested}.items():
            if split not in splits:
                raise SetupError(f"score.{key}: {name} has no split '{split}'{nearest(split, splits)}")
    for gold in recipe.gold:
        registry.make_env(gold.env, EnvOptions(settings=gold.settings))


def require_room(recipe: Recipe, size: Size, folder: Path, *, resume: bool) -> None:
    """Refuse a run that does not fit. One that is taken up has its disk already, and maybe its warm start behind it."""
    require_devices(recipe)
    require_vllm(recipe)
    if own_base(recipe, folder) is None:
        budget.require_room(forecast.warm_start_of(recipe, size), folder)
    parts = forecast.parts_of(recipe, size)
    budget.require_room([part for part in parts if not (resume and part.where == DISK)], folder)


def require_devices(recipe: Recipe) -> None:
    """Refuse a device that this machine has not. SetupError with the remedy."""
    if recipe.cluster.address is not None:
        return
    for name, device in (("learner", recipe.learner.device), ("engine", recipe.engine.device)):
        if device is not None and not machine.has_device(device):
            raise SetupError(f"{name}.device is '{device}', and torch finds no such device here: leave it out, or name "
                             "one that there is, as in 'cpu' or 'cuda:1'")  # fmt: skip


def require_vllm(recipe: Recipe) -> None:
    """Refuse engines that vLLM cannot be. SetupError with the remedy; what a cluster's nodes have, they say."""
    if recipe.learner.deterministic and recipe.sampler == "hf" and recipe.engine.batch != 1:
        raise SetupError("learner.deterministic wants the same bits of every turn, and its last ones depend on how "
                         f"many are computed at once: set engine.batch to 1, not {recipe.engine.batch}")  # fmt: skip
    if recipe.sampler != "vllm":
        return
    if recipe.learner.deterministic:
        raise SetupError("learner.deterministic wants the same bits of every turn, and vLLM's depend on what else it "
                         "computes at the time: set sampler to 'hf'")  # fmt: skip
    if recipe.engine.addresses:
        raise SetupError("engine.addresses names servers, and training starts its own, one for each pool: leave it out")
    if recipe.cluster.address is None:
        launch.runtime(VLLM)


def require_replicas(recipe: Recipe) -> None:
    """Refuse replicas of engines where there cannot be any. SetupError with the remedy."""
    if recipe.spread.replicas == 1:
        return
    if not recipe.spread.engine:
        raise SetupError("processes.replicas are processes of engines: leave processes.engine true, or replicas out")
    if recipe.sampler == "vllm" and recipe.cluster.address is None:
        raise SetupError("processes.replicas of vLLM would share the same GPUs: say engine.replicas instead")


def require_packages(recipe: Recipe) -> None:
    """Refuse where a package is missing that the recipe needs. SetupError with the command that installs it."""
    wanted = [(name, "deepspeed" if name == "deepspeed" else "train") for name in NEEDED[recipe.backend]]
    wanted += [("tokenizers", "train"), ("safetensors", "train")]
    wanted += [("peft", "train")] if recipe.learner.lora is not None else []
    wanted += [("ray", "cluster")] if recipe.cluster.address is not None else []
    for name, extra in wanted:
        if find_spec(name) is None:
            raise SetupError(f"this recipe needs the package '{name}': pip install -e '.[{extra}]'")
