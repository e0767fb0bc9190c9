"""`harness export`: a run's attempts in forms that other programs read."""

from __future__ import annotations

import csv
import hashlib
import io
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.export import Filter
    from harness.runlog import Run

COLUMNS = (
    *("entry", "task_id", "epoch", "attempt", "group", "ending", "score", "turns"),
    *("input_tokens", "output_tokens", "cost_usd", "seconds", "fingerprint"),
)


@click.command("export")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["messages", "csv", "bundle", "openai", "sharegpt", "tokens"]),
    default="messages",
    show_default=True,
)
@click.option("--min-score", type=click.FloatRange(0, 1), help="Attempts that scored at least this.")
@click.option("--env", "envs", multiple=True, help="Attempts at this environment; several times.")
@click.option("--split", help="Attempts at tasks of this split.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="File to write [default: standard output].")
def command(
    runs: tuple[Path, ...],
    form: str,
    min_score: float | None,
    envs: tuple[str, ...],
    split: str | None,
    out: Path | None,
) -> None:
    """Write the newest attempts of each RUN in a form that another program reads.

    To learn from: openai (fine-tuning files), sharegpt, tokens (ids, mask, log-probabilities, weight versions and
    rewards of models on disk), as JSON lines. Play of test and validation tasks is refused.

    To look at: messages (JSON lines, all attempts), csv, and bundle: the run folder with a SHA-256 of each file.
    """
    from harness import export, runlog
    from harness.errors import SetupError

    opened = [runlog.read(run) for run in runs]
    wanted = export.Filter(min_score, envs, split)
    if form in ("csv", "bundle") and wanted != export.Filter():
        raise SetupError(f"--min-score, --env and --split do not narrow a {form}: leave them out")
    if form == "bundle" and len(opened) > 1:
        raise SetupError("a bundle is of one run: name one RUN")
    if form == "bundle" and out is None and sys.stdout.isatty():
        raise SetupError("a bundle is binary: name a file with --out")
    if form == "bundle":
        _write(out, lambda file: write_bundle(opened[0], file))
        return
    if form in export.FORMS:
        lines = export.lines(opened, form, wanted)
    else:
        lines = csv_lines(opened) if form == "csv" else message_lines(opened, wanted)
    _write(out, lambda file: file.writelines(lines))


def _write(out: Path | None, write: Callable[[IO[bytes]], None]) -> None:
    """Write to standard output, or to a file that is there when it is whole: a refusal on the way leaves none."""
    from harness.errors import SetupError

    plain = out is not None and (out.is_file() or not out.exists())  # and no pipe or device
    part = out.with_name(f".{out.name}.part") if out and plain else None
    place = part or out
    try:
        with place.open("wb") if place else nullcontext(sys.stdout.buffer) as file:
            write(file)
        if part and out:
            part.replace(out)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SetupError(f"cannot write {out or 'standard output'}: {error.strerror}") from error
    finally:
        if part:
            part.unlink(missing_ok=True)


def message_lines(runs: Sequence[Run], wanted: Filter) -> Iterator[bytes]:
    """Yield one JSON line an attempt: its messages and tools in OpenAI's form, its score and where it comes from."""
    import msgspec

    from harness import export
    from harness.models import wire

    for trajectory in (each for run in runs for each in export.chosen(run, export.counted(run), wanted)):
        yield (
            msgspec.json.encode(
                {
                    "messages": wire.encode_messages(trajectory.history),
                    "tools": wire.encode_tools(trajectory.tools),
                    "score": trajectory.score.value,
                    "ending": trajectory.ending,
                    "env": trajectory.env,
                    "split": trajectory.split,
                    "task_id": trajectory.task_id,
                    "epoch": trajectory.epoch,
                    "digest": trajectory.digest,
                    "model": trajectory.model,
                    "agent": trajectory.agent,
                }
            )
            + b"\n"
        )


def csv_lines(runs: Sequence[Run]) -> Iterator[bytes]:
    """Yield a header and one row an attempt."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for run, record in ((each, record) for each in runs for record in each.newest().values()):
        usage = record.usage
        writer.writerow(
            [
                *(record.entry, record.task_id, record.epoch, record.attempt, record.group, record.ending),
                *(record.score.value, len(record.turns), usage.input_tokens, usage.output_tokens, usage.cost_usd),
                *(record.seconds, run.header.fingerprints.get(record.entry, "")),
            ]
        )
    yield buffer.getvalue().encode()


def write_bundle(run: Run, file: IO[bytes]) -> None:
    """Write the run folder's files and their sums into a tar.gz."""
    from harness import runlog

    with tarfile.open(fileobj=file, mode="w:gz") as bundle:
        sums = []
        for name in (runlog.HEADER, runlog.LINES):
            path = run.folder / name
            with path.open("rb") as reader:
                sums.append(f"{hashlib.file_digest(reader, 'sha256').hexdigest()}  {name}\n")
            bundle.add(path, f"{run.folder.name}/{name}")
        text = "".join(sums).encode()
        info = tarfile.TarInfo(f"{run.folder.name}/SHA256SUMS")
        info.size = len(text)
        bundle.addfile(info, io.BytesIO(text))
