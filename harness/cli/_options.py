"""The flags of `harness eval`, and how config file, flags and `--set` become one configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.config import EvalConfig, convert, merge, parse_overrides, read_toml
from harness.errors import SetupError
from harness.prompts import read_overrides

Function = TypeVar("Function", bound=Callable[..., Any])

PATHS = {
    "agent": "agent",
    "board": "board",
    "controller": "controller",
    "containers": "containers.on",
    "env": "env",
    "split": "split",
    "task_id": "task_ids",
    "limit": "limit",
    "shuffle": "shuffle",
    "epochs": "epochs",
    "seed": "seed",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "max_tokens": "sampling.max_output_tokens",
    "reasoning_effort": "sampling.reasoning_effort",
    "thinking_tokens": "sampling.thinking_tokens",
    "turn_limit": "limits.turns",
    "token_limit": "limits.tokens",
    "time_limit": "limits.seconds",
    "cost_limit": "cost_limit",
    "rules": "rules",
    "base_url": "connection.base_url",
    "api_key_env": "connection.api_key_env",
    "max_connections": "connection.max_connections",
    "concurrency": "concurrency",
    "min_coverage": "min_coverage",
    "data": "data",
    "db_url": "env_settings.db.db_url",
    "sparql_url": "env_settings.kg.sparql_url",
}
"""Flag -> the configuration's key that it sets."""

positive = click.IntRange(min=1)

FLAGS = [
    click.option("--model", "-m", help="provider/name, several separated by commas; see 'harness models'."),
    click.option("--agent", "-a", help="How the model is driven: direct, react, program:CMD, http:URL, module:attr."),
    click.option("--board", "-b", help="What is measured [default: mini]; see 'harness leaderboard'."),
    click.option("--env", "-e", help="Only these environments of the board, separated by commas, or agentrl:URL#TASK."),
    click.option("--controller", metavar="URL", help="Play at a controller: http://host:5020 (see docs/service.md)."),
    click.option("--containers", is_flag=True, default=None, help="Play environments in containers of this run's own."),
    click.option("--split", help="This split instead of the board's."),
    click.option("--task-id", multiple=True, help="Only this task; may be given several times."),
    click.option("--limit", "-n", type=positive, help="At most this many tasks of each environment."),
    click.option("--shuffle", type=int, metavar="SEED", help="Shuffle the tasks before --limit cuts."),
    click.option("--epochs", type=positive, help="Play each task this often [default: the board's]."),
    click.option("--seed", type=int, help="Of everything random [default: 0]."),
    click.option("--temperature", type=click.FloatRange(0, 2), help="[default: the board's]"),
    click.option("--top-p", type=click.FloatRange(0, 1), help="[default: the provider's]"),
    click.option("--max-tokens", type=positive, help="Output tokens of one call at most."),
    click.option("--reasoning-effort", help="For models that take one: minimal, low, medium, high."),
    click.option("--thinking-tokens", type=positive, help="Budget of extended thinking, for models that take one."),
    click.option("--turn-limit", type=positive, help="Replies in one attempt at most [default: the board's]."),
    click.option("--token-limit", type=positive, help="Tokens in one attempt at most, input and output."),
    click.option(
        "--time-limit", type=click.FloatRange(0, min_open=True), help="Seconds of one attempt [default: 3600]."
    ),
    click.option(
        "--cost-limit", type=click.FloatRange(0, min_open=True), help="US dollars of the whole run; resumable."
    ),
    click.option(
        "--rules", type=click.Choice(["fixed", "upstream"]), help="Repair or keep the published scorers' bugs."
    ),
    click.option("--prompts", type=click.Path(path_type=Path), help="TOML with texts that replace the environments'."),
    click.option("--base-url", help="An OpenAI-compatible server."),
    click.option("--api-key-env", metavar="NAME", help="The variable that holds the key [default: the provider's]."),
    click.option("--max-connections", metavar="N|auto", help="Calls under way at once [default: auto]."),
    click.option("--concurrency", type=positive, help="Attempts under way at once [default: fitted to the model]."),
    click.option("--min-coverage", type=click.FloatRange(0, 1), help="Below it the run exits 4 [default: 0.98]."),
    click.option("--db-url", help="A MySQL server for db: mysql://user:password@host:port."),
    click.option("--sparql-url", help="A SPARQL endpoint for kg that holds Freebase: http://host:port/sparql."),
    click.option("--data", help="Folder of fetched data sets [default: the user's cache]."),
    click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings as TOML, under the flags."),
    click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Any setting, above the flags."),
]


def eval_flags(function: Function) -> Function:
    """Give a command the flags of an evaluation."""
    for flag in reversed(FLAGS):
        function = flag(function)
    return function


def per_environment(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides with `env.NAME.key`, as messages and READMEs call a setting, where a configuration has it."""
    if not isinstance(overrides.get("env"), Mapping):
        return dict(overrides)
    rest = {key: value for key, value in overrides.items() if key != "env"}
    return merge({"env_settings": overrides["env"]}, rest)


def configs(flags: dict[str, Any]) -> list[EvalConfig]:
    """Return one configuration a model. SetupError names what is unknown, wrong or missing."""
    file = read_toml(flags["config_file"]) if flags["config_file"] else {}
    values: dict[str, Any] = {}
    for flag, path in PATHS.items():
        value = flags[flag]
        if value in (None, ()):
            continue
        if flag == "env":
            value = [name.strip() for name in value.split(",") if name.strip()]
        if flag == "max_connections" and value != "auto":
            if not value.isdecimal() or int(value) < 1:
                raise SetupError(f"--max-connections takes a number above 0, or 'auto', not '{value}'")
            value = int(value)
        for part in reversed(path.split(".")):
            value = {part: value}
        values = merge(values, value)
    if flags["db_url"]:
        values = merge(values, {"env_settings": {"db": {"backend": "mysql"}}})
    if flags["prompts"]:
        values = merge(values, {"prompts": read_overrides(flags["prompts"])})
    values = merge(merge(file, values), per_environment(parse_overrides(flags["overrides"])))
    models = [name.strip() for name in (flags["model"] or values.get("model") or "").split(",")]
    where = f"{flags['config_file']} and flags" if flags["config_file"] else "flags"
    return [convert(EvalConfig, {**values, "model": model}, where) for model in models]
