"""What a person may set, as frozen values: unknown keys are refused with the nearest name.

A value of a run comes from, in rising order: the board, `--config FILE.toml`, flags, `--set dotted.key=value`.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from harness.core import Count, Json, Limits, SamplingParams, Value
from harness.errors import SetupError, nearest


class Strict(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every configuration: a field it does not know is refused."""


class LocalOptions(Strict, frozen=True, kw_only=True):
    """How a model on disk is loaded (`hf/…`, `vllm/…`). What changes a score is in the model's protocol."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """"auto" is the one that the model's own configuration names, float32 on a CPU."""
    device: str | None = None
    """As torch names it; None takes a GPU where there is one."""
    tool_style: str | None = None
    """How the model writes tool calls; None finds it in its chat template."""
    template: Mapping[str, Json] = msgspec.field(default_factory=dict)
    """Settings of its chat template: `enable_thinking`, for one."""
    context: Count | None = None
    """Tokens of prompt and answer together; None is the model's own."""
    answer_tokens: Count = 1024
    """Of one turn, where `sampling.max_output_tokens` says nothing."""
    batch: Count = 64
    """Turns computed at once."""
    replicas: Count = 1
    """Servers to start, where the engine is one."""
    addresses: tuple[str, ...] = ()
    """Servers that run already; none is then started."""
    memory: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    """Share of memory that a server sets aside: of its GPU for weights and cache, 0.9 where nothing is said, or of the
    machine for the cache of one on its CPU, 0.15 there."""


class ModelOptions(Strict, frozen=True, kw_only=True):
    """How a model is reached. No field changes what is measured but `base_url` and `local`."""

    base_url: str | None = None
    """An OpenAI-compatible server to talk to instead of the provider's own."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; None takes the provider's usual one."""
    max_connections: int | Literal["auto"] = "auto"
    """Calls under way at once; "auto" starts at 16 and finds the provider's limit (AIMD)."""
    request_seconds: float = 600.0
    """Deadline of one request."""
    retries: int = 8
    """Further tries after a failed request, with growing waits."""
    retry_seconds: float = 1800.0
    """Deadline of one call, its waits and retries included."""
    cache: bool = True
    """Mark prompts for the provider's cache where it wants marks."""
    local: LocalOptions = LocalOptions()


class ContainerOptions(Strict, frozen=True, kw_only=True):
    """Whether and of what the run's environments are containers. No field changes what is measured."""

    on: bool = False
    image: str | None = None
    """One that the engine has; None is ours, built once from this checkout."""
    base: str | None = None
    """What ours is built on: an image with Python and its venv module; None is python:3.11-slim."""


class EvalConfig(Strict, frozen=True, kw_only=True):
    """One evaluation run: one model or agent on one board."""

    model: str
    """`provider/name`, `scripted/NAME`, `replay/RUN`, `human` or `module:attr`."""
    agent: str = "direct"
    """How the model is driven."""
    agent_settings: Mapping[str, Json] = msgspec.field(default_factory=dict)
    board: str | None = "mini"
    controller: str | None = None
    """Address of a controller whose workers play the environments; None plays them in this process."""
    containers: ContainerOptions = ContainerOptions()
    env: tuple[str, ...] = ()
    """Board entries to play; empty plays all."""
    split: str | None = None
    """Play this split instead of the board's: the run is then an ad hoc board of its own."""
    task_ids: tuple[str, ...] = ()
    limit: Count | None = None
    """At most this many tasks of each entry."""
    shuffle: int | None = None
    """Seed that shuffles the tasks before `limit` cuts."""
    epochs: Count | None = None
    seed: int = 0
    sampling: SamplingParams = SamplingParams()
    limits: Limits = Limits()
    rules: Literal["fixed", "upstream"] | None = None
    env_settings: Mapping[str, Mapping[str, Json]] = msgspec.field(default_factory=dict)
    """Environment name -> its own settings."""
    prompts: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Environment name -> replaced texts."""
    connection: ModelOptions = ModelOptions()
    concurrency: Count | None = None
    """Attempts under way at once; None fits it to the model."""
    cost_limit: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """US dollars for the whole run; reaching it stops the run, resumable. Refused where the price is unknown."""
    min_coverage: float = 0.98
    data: str | None = None
    """Folder of fetched data sets; None is the user's cache."""


Config = TypeVar("Config", bound=msgspec.Struct)


def convert(kind: type[Config], values: Mapping[str, Any], where: str) -> Config:
    """Make a configuration out of plain values. SetupError names the key that is unknown or of a wrong type.

    `where` says where the values come from, for the message: "--set", "run.toml", "env.db".
    """
    _refuse_no_numbers(values, where)
    try:
        return msgspec.convert(dict(values), kind)
    except msgspec.ValidationError as error:
        text = str(error)
        path = text.partition(" - at `$")[2].rstrip("`").lstrip(".")
        if "unknown field" in text:
            unknown = text.split("`")[1]
            known = _fields_at(kind, path)
            place = f"{path}.{unknown}" if path else unknown
            raise SetupError(f"{where}: unknown setting '{place}'{nearest(unknown, known)}") from error
        raise SetupError(f"{where}: {text.split(' - at ')[0]}, at '{path or 'the top'}'") from error


def _refuse_no_numbers(values: Mapping[str, Any], where: str, path: str = "") -> None:
    """Refuse NaN and infinity anywhere: TOML can say them, and no setting can mean them."""
    for key, value in values.items():
        place = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            _refuse_no_numbers(value, where, place)
        elif isinstance(value, float) and not math.isfinite(value):
            raise SetupError(f"{where}: '{place}' must be a number, not {value}")


def _fields_at(kind: type[msgspec.Struct], path: str) -> list[str]:
    """Return the field names of the struct that `path` leads to, through optional fields, lists and tables."""
    current: type[msgspec.Struct] | None = kind
    for name in re.sub(r"\[\.\.\.\]|\[\d+\]", "", path).split(".") if path else []:
        field = next((f for f in msgspec.structs.fields(current) if f.encode_name == name), None) if current else None
        current = _struct_in(field.type) if field else None
    return [field.encode_name for field in msgspec.structs.fields(current)] if current else []


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct in a type such as `Limits | None` or `tuple[BoardEntry, ...]`."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for inner in get_args(kind) if (found := _struct_in(inner))), None)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a configuration file. SetupError names the file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{path} is not TOML: {error}") from error


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Turn `dotted.key=value` pairs into nested values; key and value are TOML, or the value is text where it is none.

    Example: ["limits.turns=5", "model=openai/gpt-5"] -> {"limits": {"turns": 5}, "model": "openai/gpt-5"}.
    """
    result: dict[str, Any] = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        for value in (text, json.dumps(text)) if "=" in pair else ():
            try:
                result = merge(result, tomllib.loads(f"{key} = {value}"))
                break
            except tomllib.TOMLDecodeError:
                continue
        else:
            raise SetupError(f"--set takes dotted.key=value, not '{pair}'")
    return result


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `above` over `below`, table by table."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
