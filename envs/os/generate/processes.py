"""Processes: finding, stopping and reading those that run.

Decided here: workers are small shell scripts, begun in the agent's own shell so that they live as long as it does. A
check looks for them by their arguments, as their numbers are not known before.
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.os.data import Script
from envs.os.generate.draw import KEYS, PLACES, SERVICES, Draw
from envs.os.generate.family import Draft, family
from envs.os.generate.world import World

SLEEP = "sleep 7200"
WORKER = f"#!/bin/sh\n# Waits for work.\n{SLEEP}\n"
QUEUES = ("mail", "video", "audio", "print", "index", "merge")
COMPARE = """\
import os, sys, time
WANTED = {wanted}
PROGRAM = {program!r}
def running():
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{{number}}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\\0")[:-1]
            with open(f"/proc/{{number}}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if len(words) > 2 and words[1] == PROGRAM and fields[0] != "Z":
            # This program runs as nice as a shell does that nobody made nicer.
            found.append((" ".join(words[2:]), "T" if fields[0] == "T" else "", int(fields[16]) - os.nice(0)))
    return sorted(found)
wanted = sorted((arguments, state, nice and nice - os.nice(0)) for arguments, state, nice in WANTED)
for _ in range(10):
    if running() == wanted:
        sys.exit(0)
    # A signal takes its time to arrive.
    time.sleep(0.1)
sys.exit("the processes are not as they should be")
"""
LISTED = """\
import os, sys
sys.exit(0 if sorted(os.listdir({folder!r})) == {names} else "the folder is not as it should be")
"""


class Crew:
    """The workers of one program. Each has arguments, a folder, a variable and a file that it writes to."""

    def __init__(self, draw: Draw, count: int) -> None:
        self.home = draw.home()
        self.program = f"{self.home}/bin/{draw.pick(SERVICES)}-worker"
        self.numbers = draw.some(range(100, 990), count)
        self.queues = {number: draw.pick(QUEUES) for number in self.numbers}
        self.world = World()
        self.world.file(self.program, WORKER, 0o755)

    def arguments(self, number: int) -> str:
        """Return what a worker was called with."""
        return f"--id {number} --queue {self.queues[number]}"

    def start(self, before: Sequence[str] = (), after: str = "", outputs: Sequence[str] = ()) -> str:
        """Return the lines that begin all workers; `before` and `outputs` go with each, `after` runs behind each."""
        lines = []
        for place, number in enumerate(self.numbers):
            first = f"{before[place]} " if before else ""
            output = outputs[place] if outputs else "/dev/null"
            call = f"{first}{self.program} {self.arguments(number)}"
            lines.append(f"( {call} < /dev/null > {output} 2>&1 & {after.format(number=number)} )")
        # They are all there before the agent looks, however slow the machine, and each has begun its own sleep: until
        # then it is two processes of the same arguments for a moment, and a signal to both would last.
        lines.append(
            f"for n in {{1..500}}; do [ $(pgrep -cf '^{SLEEP}$') -ge {len(lines)} ] && break; sleep 0.02; done"
        )
        return "\n".join(lines)

    def check(
        self, gone: Sequence[int] = (), stopped: Sequence[int] = (), nice: Sequence[int] = (), by: int = 0
    ) -> Script:
        """Return the script that accepts all workers but those that are gone, some of them stopped or made nicer."""
        wanted = [
            (self.arguments(number), "T" if number in stopped else "", by if number in nice else 0)
            for number in self.numbers
            if number not in gone
        ]
        return Script(code=COMPARE.format(wanted=wanted, program=self.program), language="python")

    def of(self, queue: str) -> list[int]:
        """Return the workers of a queue."""
        return [number for number in self.numbers if self.queues[number] == queue]


def _crew(draw: Draw, few: int = 8, many: int = 26) -> tuple[Crew, str]:
    """Return workers and a queue that some, but not all, of them work for."""
    crew = Crew(draw, draw.size(few, many))
    first, second, other = crew.numbers[:3]
    queue, another = draw.some(QUEUES, 2)
    crew.queues.update({first: queue, second: queue, other: another})
    return crew, queue


@family("test", "grep head pgrep pkill ps sleep sort")
def stop_a_queue(draw: Draw) -> Draft:
    """Stop the workers of one queue; the rest go on."""
    crew, queue = _crew(draw)
    return Draft(
        ask=draw.pick(
            (
                f"Several processes of {crew.program} are running. Terminate all those that work for the queue "
                f"{queue} (option --queue), and let the others run on.",
                f"End every running {crew.program} that was started with --queue {queue}. The workers of other "
                "queues must not be disturbed.",
            )
        ),
        init=crew.world.init(),
        start=crew.start(),
        look=("ps -eo args | grep '[-]-queue' | sort | head -n 8",),
        act=(f"pkill -f -- '^/bin/sh {crew.program} .*--queue {queue}$'", "sleep 0.5"),
        proof="ps -eo args | grep '[-]-queue' | sort | head -n 8",
        checks=(crew.check(gone=crew.of(queue)),),
        live=True,
    )


@family("test", "grep head pgrep pkill ps sleep sort")
def pause_a_queue(draw: Draw) -> Draft:
    """Pause the workers of one queue, without ending them."""
    crew, queue = _crew(draw)
    return Draft(
        ask=draw.pick(
            (
                f"Pause, but do not end, the running processes of {crew.program} that serve the queue {queue} "
                f"(--queue {queue}), so that they can be continued later. All other workers go on.",
                f"Freeze every {crew.program} process with --queue {queue}: it must stay in the process table in the "
                "stopped state. Do nothing to the rest.",
            )
        ),
        init=crew.world.init(),
        start=crew.start(),
        look=("ps -eo args | grep '[-]-queue' | sort | head -n 8",),
        act=(f"pkill -STOP -f -- '^/bin/sh {crew.program} .*--queue {queue}$'", "sleep 0.5"),
        proof="ps -eo state,args | grep '^T.*[-]-queue' | sort | head -n 8",
        checks=(crew.check(stopped=crew.of(queue)),),
        live=True,
    )


@family("test", "cut grep pgrep ps sleep tr")
def variable_of_process(draw: Draw) -> Draft:
    """Read a variable from a process's environment."""
    crew, _ = _crew(draw)
    key = draw.pick(KEYS).upper()
    values = [f"{draw.pick(PLACES)}-{number}" for number in draw.some(range(1000, 9999), len(crew.numbers))]
    place = draw.number(0, len(values) - 1)
    number = crew.numbers[place]
    return Draft(
        ask=draw.pick(
            (
                f"One running process of {crew.program} was started with --id {number}. What is the value of the "
                f"variable {key} in its environment?",
                f"Which value does the environment variable {key} have in the process {crew.program} --id {number}, "
                "which is running now?",
            )
        ),
        init=crew.world.init(),
        start=crew.start(before=[f"{key}={value}" for value in values]),
        look=(f"ps -eo args | grep '[-]-id {number}'",),
        act=(
            f"pid=$(pgrep -f -- '^/bin/sh {crew.program} --id {number} ')",
            f"tr '\\0' '\\n' < /proc/$pid/environ | grep '^{key}=' | cut -d= -f2",
        ),
        answer=values[place],
    )


@family("train", "cut grep head pgrep ps readlink sleep sort")
def worker_in_folder(draw: Draw) -> Draft:
    """Tell which worker runs in a folder."""
    crew, _ = _crew(draw)
    folders = [f"{crew.home}/jobs/{stem}" for stem in draw.stems(len(crew.numbers))]
    for folder in folders:
        crew.world.folder(folder)
    place = draw.number(0, len(folders) - 1)
    return Draft(
        ask=draw.pick(
            (
                f"Which of the running workers {crew.program} has {folders[place]} as its working folder? Answer "
                "with its --id.",
                f"Find the process of {crew.program} whose current directory is {folders[place]} and give the number "
                "behind its --id.",
            )
        ),
        init=crew.world.init(),
        start=crew.start(before=[f"cd {folder} &&" for folder in folders]),
        look=("ps -eo args | grep '[-]-id' | sort | head -n 6",),
        act=(
            f"for p in $(pgrep -f -- '^/bin/sh {crew.program} --id'); do "
            f'[ "$(readlink /proc/$p/cwd)" = {folders[place]} ] && pid=$p; done; echo ${{pid:+found}}',
            "ps -o args= -p $pid | grep -o 'id [0-9]*' | cut -d' ' -f2",
        ),
        answer=str(crew.numbers[place]),
    )


@family("test", "cat head ls pgrep rm sleep wc")
def stale_pid_files(draw: Draw) -> Draft:
    """Delete the files that name processes which are gone."""
    crew, _ = _crew(draw)
    folder = f"{crew.home}/run"
    crew.world.folder(folder)
    for number in draw.some(range(1000, 1990), draw.size(5, 20)):
        # Higher than any number that a process can have.
        crew.world.file(f"{folder}/{number}.pid", f"{draw.number(4_200_000, 4_999_999)}\n")
    names = sorted(f"{number}.pid" for number in crew.numbers)
    return Draft(
        ask=draw.pick(
            (
                f"The files {folder}/*.pid each hold the number of a process. Delete those whose process does not "
                "exist (any more). Keep the others, and let the processes run.",
                f"In {folder}, remove every .pid file that names a process which is not running. Files of running "
                "processes, and these processes themselves, must stay.",
            )
        ),
        init=crew.world.init(),
        start=crew.start(after=f"echo $! > {folder}/{{number}}.pid"),
        look=(f"ls {folder} | wc -l", f"ls {folder} | head -n 5"),
        act=(f"for f in {folder}/*.pid; do [ -d /proc/$(cat $f) ] || rm $f; done",),
        proof=f"ls {folder}",
        checks=(Script(code=LISTED.format(folder=folder, names=names), language="python"), crew.check()),
        live=True,
    )


@family("validation", "cut grep head pgrep ps readlink sleep sort")
def who_writes_there(draw: Draw) -> Draft:
    """Tell which worker has a file open."""
    crew, _ = _crew(draw)
    files = [f"{crew.home}/out/{stem}.part" for stem in draw.stems(len(crew.numbers))]
    crew.world.folder(f"{crew.home}/out")
    place = draw.number(0, len(files) - 1)
    return Draft(
        ask=draw.pick(
            (
                f"One of the running workers {crew.program} has the file {files[place]} open for writing. Which --id "
                "was it started with?",
                f"{files[place]} is being written by a process of {crew.program}. Answer with the number behind that "
                "process's --id.",
            )
        ),
        init=crew.world.init(),
        start=crew.start(outputs=files),
        look=("ps -eo args | grep '[-]-id' | sort | head -n 6",),
        act=(
            f"for p in $(pgrep -f -- '^/bin/sh {crew.program} --id'); do "
            f'[ "$(readlink /proc/$p/fd/1)" = {files[place]} ] && pid=$p; done; echo ${{pid:+found}}',
            "ps -o args= -p $pid | grep -o 'id [0-9]*' | cut -d' ' -f2",
        ),
        answer=str(crew.numbers[place]),
    )


@family("validation", "grep head pgrep ps renice sleep sort")
def nicer_queue(draw: Draw) -> Draft:
    """Give the workers of one queue another niceness."""
    crew, queue = _crew(draw)
    by = draw.number(11, 19)
    return Draft(
        ask=draw.pick(
            (
                f"Set the niceness of all running {crew.program} processes that have --queue {queue} to {by}. The "
                "others keep theirs, and all keep running.",
                f"The workers of {crew.program} for the queue {queue} take too much of the processor: give them the "
                f"nice value {by}, and leave the workers of the other queues as they are.",
            )
        ),
        init=crew.world.init(),
        start=crew.start(),
        look=("ps -eo ni,args | grep '[-]-queue' | sort | head -n 8",),
        act=(f"renice -n {by} -p $(pgrep -f -- '^/bin/sh {crew.program} .*--queue {queue}$') > /dev/null",),
        proof="ps -eo ni,args | grep '[-]-queue' | sort | head -n 8",
        checks=(crew.check(nice=crew.of(queue), by=by),),
        live=True,
    )


@family("train", "grep head kill pgrep ps sleep sort")
def stop_one(draw: Draw) -> Draft:
    """Stop one worker by its number."""
    crew, _ = _crew(draw)
    number = draw.pick(crew.numbers)
    return Draft(
        ask=draw.pick(
            (
                f"Terminate the process of {crew.program} that was started with --id {number}, and no other.",
                f"Among the running workers {crew.program}, end the one with --id {number}. All others must go on "
                "running.",
            )
        ),
        init=crew.world.init(),
        start=crew.start(),
        look=(f"ps -eo args | grep '[-]-id {number}'",),
        act=(f"kill $(pgrep -f -- '^/bin/sh {crew.program} --id {number} ')", "sleep 0.5"),
        proof="ps -eo args | grep '[-]-id' | sort | head -n 6",
        checks=(crew.check(gone=[number]),),
        live=True,
    )


@family("train", "grep head pgrep ps sleep sort wc")
def count_of_queue(draw: Draw) -> Draft:
    """Count the workers of one queue."""
    crew, queue = _crew(draw, 30, 45)
    for number in crew.numbers[: draw.number(10, 29)]:
        crew.queues[number] = queue
    return Draft(
        ask=draw.pick(
            (
                f"How many processes of {crew.program} with --queue {queue} are running?",
                f"Count the running workers {crew.program} that serve the queue {queue} (see their option --queue).",
            )
        ),
        init=crew.world.init(),
        start=crew.start(),
        look=("ps -eo args | grep '[-]-queue' | sort | head -n 6",),
        act=(f"pgrep -f -- '^/bin/sh {crew.program} .*--queue {queue}$' | wc -l",),
        answer=str(len(crew.of(queue))),
    )
