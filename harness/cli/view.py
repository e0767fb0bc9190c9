"""`harness view`: runs, comparisons and training runs in the browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.view.library import Library

FOLDER = click.Path(path_type=Path)
PORT = 7860
RUNS = "<runs>"
"""The hidden page's name: no folder's that a person types."""


class Pages(click.Group):
    """Takes what is no page's name for run folders."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Put the hidden page of all runs before folders and options."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = [RUNS, *args]
        return super().parse_args(context, args)


def _served(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every page has."""
    function = click.option("--no-open", is_flag=True, help="Leave the browser alone.")(function)
    return click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=PORT,
        show_default=True,
        help="On 127.0.0.1; 0 takes a free one.",
    )(function)


@click.group("view", cls=Pages, invoke_without_command=True)
def command() -> None:
    """Look at runs in the browser, live while they play: harness view [RUNS…].

    RUNS are run folders, or folders that hold them [default: runs]. The server listens on this machine alone.
    """


@command.command(RUNS, hidden=True)
@click.argument("folders", nargs=-1, type=FOLDER)
@_served
def runs(folders: tuple[Path, ...], port: int, no_open: bool) -> None:
    """Show the list of runs, or the one run that is given."""

    def address(library: Library) -> str:
        from harness.view.library import kind_of
        from harness.view.tasks import link

        kind = kind_of(folders[0]) if len(folders) == 1 else None
        return link(f"/{kind}", run=library.name_of(folders[0])) if kind else "/"

    _serve(list(folders) or [Path("runs")], port, address, no_open)


@command.command("compare")
@click.argument("first", type=FOLDER)
@click.argument("second", type=FOLDER)
@_served
def compare(first: Path, second: Path, port: int, no_open: bool) -> None:
    """Show where run SECOND differs from run FIRST, with both trajectories side by side."""

    def address(library: Library) -> str:
        from harness.view.tasks import link

        return link("/compare", a=library.name_of(first), b=library.name_of(second))

    _serve([first, second], port, address, no_open)


@command.command("train")
@click.argument("run", type=FOLDER)
@_served
def train(run: Path, port: int, no_open: bool) -> None:
    """Show the live curves of the training run in folder RUN."""
    from harness.errors import SetupError
    from harness.view.library import kind_of
    from harness.view.tasks import link

    if kind_of(run) != "train":
        raise SetupError(f"{run} is no training run: it has no metrics.jsonl and no recipe.json")
    _serve([run], port, lambda library: link("/train", run=library.name_of(run)), no_open)


def _serve(folders: list[Path], port: int, address: Callable[[Library], str], no_open: bool) -> None:
    from harness.view import html

    html.require()
    from harness.view.server import serve

    serve(folders, port, address, browser=not no_open, say=lambda line: click.echo(line, err=True))
