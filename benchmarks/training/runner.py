"""Runs orders: one process each on cores of its own, one or two at once; a line of results as each ends.

Decided here: what has a line is never run again, but where its weights are gone and others need them: training keeps
its first line then, whose seconds and scores stand beside those of its own day and machine, while a warm start takes
the new one, for its weights are others; what failed is told, leaves no line, and is tried when asked again; nothing
waits without a bound. Arms that are compared by wall-clock deserve a quiet machine and `--jobs 1`; a line says how busy
the machine was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue

import msgspec

from benchmarks.training import lines as results
from benchmarks.training import measure
from benchmarks.training.launch import BASE, JOB, OUTCOME, Job, Outcome
from benchmarks.training.lines import Line
from benchmarks.training.orders import Order
from harness.errors import HarnessError
from training import disk, scores

ROOT = Path(__file__).parent.parent.parent
RUN_SECONDS = 7200.0
END_SECONDS = 30.0
FIRST_POLL_SECONDS, POLL_SECONDS = 0.05, 2.0
LOG = "log"
KEPT = "begun"
ARITHMETIC = ("amx_bf16", "avx512_bf16", "avx512f", "avx2")
PROGRAM = (sys.executable, "-m", "benchmarks.training.launch")
Say = Callable[[str], None]


class Failed(HarnessError):  # noqa: N818 - an outcome
    """A run came to nothing; the message says why, and where its log is."""


class Runner:
    """Where runs are made and written down."""

    def __init__(self, results_folder: Path, work: Path, jobs: int, say: Say, program: Sequence[str] = PROGRAM) -> None:
        """Open it. `program` is what a job is handed to, with its file and our process id as arguments."""
        self._program = tuple(program)
        self.lines = results.read(results_folder)
        self._results = results_folder
        self._work = work.resolve()
        self._say = say
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        self._jobs = jobs
        self._cores: SimpleQueue[tuple[int, ...]] = SimpleQueue()
        for part in shared(sorted(os.sched_getaffinity(0)), jobs):
            self._cores.put(part)

    def perform(self, orders: Sequence[Order]) -> list[str]:
        """Make the runs that have no line, each as early in their order as what it needs is there.

        Returns a sentence for each that failed, or that waits for one that did.
        """
        waiting = [order for order in orders if not self.done(order, orders)]
        running: dict[Future[str | None], Order] = {}
        failed: list[str] = []
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                while True:
                    unmade = {order.key for order in (*waiting, *running.values())}
                    ready = [order for order in waiting if self._ready(order, unmade)]
                    for order in ready[: self._jobs - len(running)]:
                        waiting.remove(order)
                        running[pool.submit(self._tried, order)] = order
                    if not running:
                        break
                    for each in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[each]
                        failed += filter(None, [each.result()])
            except BaseException:
                self._stopped.set()
                raise
        return failed + [f"{_title(order)}: waits for a run that failed" for order in waiting]

    def done(self, order: Order, orders: Sequence[Order]) -> bool:
        """Whether a run need not be made: it has a line, and its weights where another run still needs them."""
        if order.key not in self.lines:
            return False
        needing = [other for other in orders if order.key in (other.base, other.of) and other.key not in self.lines]
        return not needing or self._kept(order.key).is_dir() or (self.folder(order.key) / OUTCOME).is_file()

    def _ready(self, order: Order, unmade: set[str]) -> bool:
        """Whether what a run needs is there, and is not being made anew."""
        return all(key in self.lines and key not in unmade for key in order.needs)

    def folder(self, key: str) -> Path:
        """Return the folder of a run."""
        return self._work / key

    def base(self, key: str) -> Path:
        """Return the weights of a warm start: those that are kept beside the results, or where it was made."""
        kept = self._kept(key)
        return kept if kept.is_dir() else self.folder(key) / BASE

    def _kept(self, key: str) -> Path:
        return self._results.resolve() / KEPT / key

    def _tried(self, order: Order) -> str | None:
        if self._stopped.is_set():
            return f"{_title(order)}: not begun"
        cores = self._cores.get()
        try:
            self._say(f"{_title(order)} begins")
            line = self._run(order, cores)
        except HarnessError as error:
            self._say(f"{_title(order)}: {error}")
            return f"{_title(order)}: {error}"
        finally:
            self._cores.put(cores)
        success = ", ".join(f"{line.success(each):.3f} at T {each:g}" for each in order.temperatures)
        self._say(
            f"{_title(order)}: {success}; {line.seconds:.0f} s of {line.wall_seconds:.0f} s, {line.peak_mb:,.0f} MB"
        )
        return None

    def _run(self, order: Order, cores: tuple[int, ...]) -> Line:
        folder = self.folder(order.key)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / OUTCOME).unlink(missing_ok=True)
        job = self._job(order, cores)
        (folder / JOB).write_bytes(msgspec.json.format(msgspec.json.encode(job), indent=1))
        command = [*self._program, str(folder / JOB), str(os.getpid())]
        load, begun = os.getloadavg()[0], time.monotonic()
        peak = self._child(command, folder / LOG, len(cores))
        try:
            outcome = msgspec.json.decode((folder / OUTCOME).read_bytes(), type=Outcome)
        except (OSError, msgspec.MsgspecError):
            raise Failed(f"{_last(folder / LOG)} (log: {folder / LOG})") from None
        line = Line(
            key=order.key,
            kind=order.kind,
            recipe=order.recipe,
            above=order.above,
            seed=order.seed,
            command=f"python -m benchmarks training {order.experiment}  # {order.arm}, seed {order.seed}",
            commit=commit(),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            load=(round(load, 2), round(os.getloadavg()[0], 2)),
            cores=len(cores),
            processor=processor(),
            sittings=outcome.sittings,
            seconds=round(outcome.seconds, 1),
            wall_seconds=round(time.monotonic() - begun, 1),
            peak_mb=round(peak, 1),
            figures=outcome.figures,
            scores=outcome.scores,
            reward=outcome.reward,
            validation=outcome.validation,
            by_env=outcome.by_env,
            began=outcome.began,
        )
        if order.kept:
            disk.copy(folder / BASE, self._kept(order.key))
        with self._writing:
            if order.kind != "train" or order.key not in self.lines:
                results.append(self._results / f"{order.recipe}{results.SUFFIX}", line)
                self.lines[order.key] = line
        tidy(folder)
        return line

    def _job(self, order: Order, cores: tuple[int, ...]) -> Job:
        """Return what the process is told."""
        seconds = self.lines[order.seconds_of].seconds if order.seconds_of else order.seconds
        steps = None
        if order.kind == "train" and order.of and seconds is not None:
            steps = measure.cut(self.lines[order.of].reward, seconds)
        return Job(
            kind=order.kind,
            recipe=order.recipe,
            above=order.above,
            seed=order.seed,
            split=order.split,
            tasks=order.tasks,
            temperatures=order.temperatures,
            epochs=order.epochs,
            sampled=order.sampled,
            base=str(self.base(order.base)) if order.base else None,
            of=str(self.folder(order.of)) if order.of else None,
            seconds=seconds,
            played=order.played,
            kept=order.kept,
            steps=steps,
            cores=cores,
        )

    def _child(self, command: Sequence[str], log: Path, threads: int) -> float:
        """Run a process to its end; return the most memory of it and all its descendants, in MB."""
        surroundings = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        peak, wait, until = 0.0, FIRST_POLL_SECONDS, time.monotonic() + RUN_SECONDS
        with log.open("ab") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, env=surroundings, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        try:
            while process.poll() is None:
                peak = max(peak, memory(process.pid))
                if self._stopped.is_set() or time.monotonic() > until:
                    raise Failed(f"stopped (log: {log})")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(wait)
                wait = min(2 * wait, POLL_SECONDS)
        finally:
            end(process)
        return peak


def shared(cores: Sequence[int], jobs: int) -> list[tuple[int, ...]]:
    """Share cores out among so many runs at once, each at least one."""
    return [tuple(cores[place::jobs]) or (cores[place % len(cores)],) for place in range(jobs)]


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it began: by an interrupt, so that it puts its children away, then by force."""
    if process.poll() is not None:
        return
    family = descendants(process.pid)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    for number in {process.pid, *family} & {*processes()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.wait(END_SECONDS)


def memory(root: int) -> float:
    """Return the memory of a process and its descendants in MB, shared pages shared out."""
    return sum(_proportional(number) for number in (root, *descendants(root))) / 1024


def descendants(root: int) -> list[int]:
    """Return a process's children, theirs, and so on."""
    parents = processes()
    found = [root]
    for number in found:
        found += [child for child, parent in parents.items() if parent == number]
    return found[1:]


def processes() -> dict[int, int]:
    """Return process -> parent, of all that live."""
    return dict(_parents())


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if state != "Z":
                    yield int(folder.name), int(parent)


def _proportional(number: int) -> float:
    with contextlib.suppress(OSError):
        for row in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if row.startswith("Pss:"):
                return float(row.split()[1])
    return 0.0


def processor(said: Path = Path("/proc/cpuinfo")) -> str:
    """Return what the machine computes with."""
    try:
        rows = (row.partition(":") for row in said.read_text().splitlines())
    except OSError:
        return ""
    told = {name.strip(): value.strip() for name, _, value in rows}
    flags = told.get("flags", "").split()
    widest = next((flag for flag in ARITHMETIC if flag in flags), "")
    return " ".join(filter(None, (told.get("model name", ""), widest)))


def commit() -> str:
    """Return what the code is of; a + where it has changes."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


def tidy(folder: Path) -> None:
    """Remove what is large and not needed again: snapshots, evaluations, what a resumed run would need."""
    for name in ("made", "run/snapshots", f"run/{scores.FOLDER}", scores.FOLDER, "run/tensorboard"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for old in (folder / "run" / "checkpoints").glob("step-*"):
        shutil.rmtree(old, ignore_errors=True)


def _title(order: Order) -> str:
    return f"{order.recipe}: {order.arm}, seed {order.seed}"


def _last(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.is_file() else []
    return text[-1] if text else "it said nothing"
