"""The command line. One file a command; whatever is heavy is imported inside the command that needs it.

A room brings commands of its own in `<room>/commands.py`. Exit codes: 0 complete and valid, 1 crash, 2 usage or
set-up, 3 incomplete but resumable, 4 coverage below the threshold, 5 regression under --gate, 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Sequence

import click

from harness.errors import HarnessError, SetupError, StorageError, nearest

ROOMS = ("envs", "agents", "leaderboards", "training")


class Commands(click.Group):
    """Finds a command by its file's name and imports it only then."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the hub's commands and those that rooms bring."""
        return sorted([*_own_commands(), *(name for room in ROOMS for name in _room_commands(room))])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import one command; None where there is none of that name."""
        if name in (own := _own_commands()):
            command: click.Command = importlib.import_module(f"harness.cli.{own[name]}").command
            return command
        return next((found[name] for room in ROOMS if name in (found := _room_commands(room))), None)

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown command with the nearest names."""
        if args and self.get_command(context, args[0]) is None:
            raise SetupError(f"no command '{args[0]}'{nearest(args[0], self.list_commands(context))}")
        return super().resolve_command(context, args)


def _own_commands() -> dict[str, str]:
    """Return command -> module of the hub's commands."""
    modules = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return {name.replace("_", "-"): name for name in modules}


def _room_commands(room: str) -> dict[str, click.Command]:
    """Return the commands of a room's commands.py, light to import by contract."""
    from harness import registry

    folder = registry.room(room)
    if folder is None or not (folder / "commands.py").exists():
        return {}
    module = importlib.import_module(f"{room}.commands")
    return {value.name or "": value for value in vars(module).values() if isinstance(value, click.Command)}


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="agent-harness", prog_name="harness")
def cli() -> None:
    """Run agent environments against any agent, and rank the results with honest statistics.

    Start with: harness eval --model scripted/oracle
    """


def main() -> None:
    """Run the command line."""
    code = run(cli)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # one more Ctrl-C while the interpreter ends changes no exit code
    sys.exit(code)


def run(command: click.Command, words: Sequence[str] | None = None, name: str | None = None) -> int:
    """Run a command and return the exit code; every expected error is one sentence on standard error.

    Args:
        command: what is run.
        words: what stands after its name; None takes the process's.
        name: what it calls itself; None takes the process's.
    """
    try:
        code = command.main(args=words, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.exceptions.Abort:
        code = 130
    except StorageError as error:
        code = _say(error, 3)
    except SetupError as error:
        code = _say(error, 2)
    except KeyboardInterrupt:
        code = 130
    except HarnessError as error:
        code = _say(error, 1)
    except BrokenPipeError:
        _silence()
        code = 0
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}:
            raise
        _silence()
        code = _say(f"cannot write {error.filename or 'the output'}: {error.strerror}", 3)
    return code if isinstance(code, int) else 0


def _silence() -> None:
    """Send what is still buffered for standard output nowhere, so that the interpreter does not try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _say(error: Exception | str, code: int) -> int:
    click.echo(f"harness: {error}", err=True)
    return code
