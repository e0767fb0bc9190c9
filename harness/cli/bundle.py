"""`harness bundle`: a run as one file, to be sent to a leaderboard."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("bundle")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The archive to write [default: RUN.tar.gz].")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON on standard output.")
def command(run: Path, out: Path | None, as_json: bool) -> None:
    """Write RUN as one archive: its log, what was asked, fingerprints, versions, and a SHA-256 of each file.

    Addresses, names of keys and folders of data are left out; messages are as they are. Whoever receives it takes it
    in with 'harness leaderboard add'.
    """
    import json

    from harness import bundle, runlog

    opened = runlog.read(run)
    target = out or Path(f"{run.resolve().name}.tar.gz")
    manifest = bundle.pack(opened, target)
    size = target.stat().st_size
    what = f"{manifest.records} records of {manifest.model} on {manifest.board}"
    click.echo(f"{target}: {what}, {size:,} bytes", err=True)
    if as_json:
        click.echo(json.dumps({"bundle": str(target), "records": manifest.records, "bytes": size}))
