"""Makes a small chat model from nothing: random weights, a tokenizer trained on the environments' own train splits.

The model of tests, demonstrations and the `tiny` recipes. Decided here: Qwen3's shape, embeddings not tied (an engine
that reloads tied weights may keep a stale copy of one); a byte-level BPE, which can write any text; a chat template in
ChatML with tools and calls in the Hermes form, short, since a tiny model reads every token of it, and what is fixed in
that form is one token each. The tokenizer sees gold play of `train` alone. The same arguments give the same files.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import lookback, registry, validate
from harness.core import EnvOptions, Json, Trajectory, digest
from harness.errors import SetupError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3Config

MARKS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
END_OF_TURN = "<|im_end|>"
FORMS = ('\n{"name": "', '", "arguments": {"', '", "arguments": {', '": "', '", "', '"}}\n', "}}\n")
"""What a tool call is made of beside its words. Each is one piece of text to the tokenizer, as are the names of tools,
so that a call takes about half as many tokens."""
PIECES = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Into which GPT-2 divides a text before it merges bytes."""
TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{%- for tool in tools %}{% set f = tool.function if tool.function is defined else tool %}
{{ f.name }} {{ f.parameters.properties | list | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}<|im_start|>tool
<tool_response>{{ message.content }}</tool_response><|im_end|>
{% elif message.role == 'assistant' %}<|im_start|>assistant
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>
{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


class Shape(NamedTuple):
    """A model's size."""

    vocabulary: int
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    feed_forward: int
    context: int
    copies: bool = False
    """It begins with the two heads that copying needs (`harness.lookback`)."""

    @property
    def head_size(self) -> int:
        """Dimensions of an attention head."""
        return self.hidden // self.heads


_TINY = Shape(1536, 160, 3, 5, 5, 448, 16384)
SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "nano": Shape(640, 64, 2, 2, 1, 128, 8192),
        "tiny": _TINY,
        "tiny-copying": _TINY._replace(copies=True),
        "small": Shape(2048, 256, 6, 8, 4, 704, 32768),
    }
)


class Made(NamedTuple):
    """What was made."""

    folder: Path
    parameters: int
    vocabulary: int
    tasks: int


async def gold_play(
    name: str,
    tasks: int,
    seed: int,
    options: EnvOptions,
    *,
    known: Mapping[str, Trajectory] = MappingProxyType({}),
    keep: Callable[[Trajectory], None] = lambda _: None,
) -> list[Trajectory]:
    """Return gold play of an environment's first train tasks. SetupError where it cannot be opened here.

    Args:
        name: of the environment.
        tasks: how many.
        seed: of the play.
        options: of the environment.
        known: what was played before, by task id; such a task is not played again.
        keep: sees each play that is new.
    """

    def played_now(play: Trajectory) -> None:
        played[play.task_id] = play
        keep(play)

    env = registry.make_env(name, options)
    await env.open()
    try:
        oracle = registry.make_agent(validate.ORACLE)
        chosen = list(islice(env.tasks("train"), tasks))
        played = {task.id: known[task.id] for task in chosen if task.id in known}
        await validate.play(env, oracle, [task for task in chosen if task.id not in played], seed=seed, keep=played_now)
        return [played[task.id] for task in chosen]
    finally:
        await env.close()


def make(folder: Path, shape: Shape, plays: Sequence[Trajectory], seed: int) -> Made:
    """Write a model, its tokenizer and where they come from into a new folder.

    Args:
        folder: where; must not exist, or be empty.
        shape: how large.
        plays: gold play whose text the tokenizer is trained on.
        seed: of the weights.

    Raises:
        SetupError: the folder is taken, a play is of another split than train, or a package is missing.
    """
    require_packages()
    if wrong := next((play for play in plays if play.split != "train"), None):
        raise SetupError(f"a tokenizer is trained on train tasks alone, not on '{wrong.split}' of {wrong.env}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(f"{folder} is not empty: give --out another folder")
    from safetensors import SafetensorError
    from transformers import Qwen3ForCausalLM, set_seed
    from transformers.utils import logging

    logging.disable_progress_bar()
    staging = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(staging, ignore_errors=True)
    tokenizer = train_tokenizer(plays, shape)
    set_seed(seed)
    model: Any = Qwen3ForCausalLM(
        configuration(
            shape._replace(vocabulary=len(tokenizer)),
            bos_token_id=None,
            eos_token_id=tokenizer.convert_tokens_to_ids(END_OF_TURN),
            pad_token_id=tokenizer.convert_tokens_to_ids(MARKS[0]),
        )
    )
    if shape.copies:
        lookback.prepare(model)
    try:
        tokenizer.save_pretrained(staging)
        model.save_pretrained(staging)
        _write_origin(staging, shape, plays, seed)
        if folder.is_dir():
            folder.rmdir()
        staging.rename(folder)
    except (OSError, SafetensorError) as error:
        raise SetupError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Made(folder, int(model.num_parameters()), len(tokenizer), len(plays))


def configuration(shape: Shape, **further: Any) -> Qwen3Config:
    """Return the configuration of a model of a shape, with further settings of its own."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_size,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=shape.context,
        rope_theta=lookback.ROPE_THETA if shape.copies else 1e4,
        tie_word_embeddings=False,
        **further,
    )


def train_tokenizer(plays: Sequence[Trajectory], shape: Shape) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on what was said and done in gold play."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    names = sorted({tool.name for play in plays for tool in play.tools if "_" in tool.name}, key=len, reverse=True)
    pieces = "|".join([*map(re.escape, (*FORMS, *names)), PIECES])
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary,
        special_tokens=list(MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(_texts(plays), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=END_OF_TURN,
        pad_token=MARKS[0],
        additional_special_tokens=[END_OF_TURN, "<|im_start|>"],
        chat_template=TEMPLATE,
        model_max_length=shape.context,
        clean_up_tokenization_spaces=False,
    )


def _texts(plays: Iterable[Trajectory]) -> Iterable[str]:
    for play in plays:
        yield from (f"{tool.name} {json.dumps(list(_parameters(tool.parameters)))}" for tool in play.tools)
        for message in play.history:
            yield f"{message.role}\n{message.content}"
            for call in message.tool_calls:
                yield f'\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n'


def _parameters(schema: Mapping[str, Json]) -> Iterable[str]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else ()


def _write_origin(folder: Path, shape: Shape, plays: Sequence[Trajectory], seed: int) -> None:
    """Say in the folder what the model was made of: a reader can tell that no test task is among it."""
    origin: dict[str, Json] = {
        "made_by": "harness init-model",
        "shape": dict(shape._asdict()),
        "seed": seed,
        "tasks": {env: sum(play.env == env for play in plays) for env in sorted({play.env for play in plays})},
        "tasks_digest": digest(sorted(play.digest for play in plays)),
    }
    (folder / "origin.json").write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")


def require_packages() -> None:
    """Refuse where a package is missing."""
    from importlib.util import find_spec

    if missing := [name for name in ("torch", "transformers", "tokenizers") if find_spec(name) is None]:
        raise SetupError(f"a local model needs {', '.join(missing)}: pip install -e '.[local]'")
