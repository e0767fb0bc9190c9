"""The status page: what a controller has at this moment, as one small page that asks for nothing else."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape

from harness.service.controller import Controller

REFRESH_SECONDS = 5
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin-bottom: 1.5rem; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.coma { color: #b00020; } .draining { color: #8a6100; }
@media (prefers-color-scheme: dark) { body { background: #151515; color: #ddd; } .coma { color: #ff8a80; } }
"""


def page(controller: Controller, notices: Iterable[str] = ()) -> tuple[str, dict[str, str]]:
    """Return the page and the headers it is sent with."""
    nonce = secrets.token_urlsafe(16)
    headers = {
        "Content-Security-Policy": f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    totals = controller.metrics.totals
    counts = [(name, str(totals[name])) for name in ("sessions", "interactions", "errors", "restarts")]
    body = "".join(
        (
            "<h1>Controller</h1>",
            *(f"<p>{escape(notice)}</p>" for notice in notices),
            _table(
                "Tasks", ("task", "workers", "slots", "under way", "waiting"), _tasks(controller), numbers=(1, 2, 3, 4)
            ),
            _table(
                "Workers",
                ("task", "address", "state", "sessions", "of", "heard"),
                _workers(controller),
                numbers=(3, 4, 5),
            ),
            _table("Since the start", ("what", "how many"), counts, numbers=(1,)),
        )
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Controller</title>'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<style nonce="{nonce}">{STYLE}</style></head><body>{body}</body></html>',
        headers,
    )


def _tasks(controller: Controller) -> list[Sequence[str]]:
    dispatch = controller.dispatch
    under_way = Counter(session.name for session in controller.sessions.values())
    names = sorted({name for name, _ in dispatch.workers} | under_way.keys())
    rows: list[Sequence[str]] = []
    for name in names:
        live = [worker for worker in dispatch.of(name) if dispatch.live(worker)]
        slots = sum(worker.concurrency for worker in live)
        waiting = len(dispatch.waiting.get(name, ()))
        rows.append((name, str(len(live)), str(slots), str(under_way[name]), str(waiting)))
    return rows


def _workers(controller: Controller) -> list[Sequence[str]]:
    now = time.monotonic()
    return [
        (
            worker.name,
            worker.address,
            controller.dispatch.state(worker),
            str(len(worker.sessions)),
            str(worker.concurrency),
            f"{now - worker.seen:.0f} s ago",
        )
        for worker in sorted(controller.dispatch.workers.values(), key=lambda worker: (worker.name, worker.address))
    ]


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    def cells(kind: str, row: Sequence[str]) -> str:
        classes = ["number" if column in numbers else "" for column in range(len(row))]
        return "".join(
            f'<{kind} class="{name or (escape(cell) if cell in {"coma", "draining"} else "")}">{escape(cell)}</{kind}>'
            for name, cell in zip(classes, row, strict=True)
        )

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows) or f'<tr><td colspan="{len(head)}">none</td></tr>'
    return f"<h2>{escape(title)}</h2><table><thead><tr>{cells('th', head)}</tr></thead><tbody>{lines}</tbody></table>"
