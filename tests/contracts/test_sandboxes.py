"""The one contract of every sandbox: what a box is, what a shell does, what a judge sees, and what cannot get out."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.errors import SandboxError, SetupError
from harness.sandbox import Bounds, Box, Finished, Sandbox, connect

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOUNDS = Bounds(memory_bytes=256 << 20, processes=64, cpus=1.0, disk_bytes=64 << 20, output_bytes=64 << 10)
SECONDS = 20.0


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["bubblewrap", pytest.param("docker", marks=pytest.mark.slow)]
)
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """Return each back-end that works on this machine, open."""
    try:
        settings = {"docker": request.getfixturevalue("docker_settings")} if request.param == "docker" else None
        sandbox = await connect(request.param, settings)
    except SetupError as error:
        pytest.skip(f"{request.param} does not work here: {error}")
    yield sandbox
    await sandbox.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(sandbox: Sandbox) -> AsyncIterator[Box]:
    """Return an open box with narrow bounds."""
    async with sandbox.box(BOUNDS) as box:
        yield box


def text(finished: Finished) -> str:
    """Return what a command printed, which must have ended by itself."""
    assert finished.status is not None, finished
    return finished.output.decode()


async def script(box: Box, code: str, seconds: float = SECONDS) -> str:
    """Run a bash script in a box and return what it printed."""
    return text(await box.run(["bash", "-c", code], seconds=seconds))


def host_processes(word: str) -> list[int]:
    """Return the processes of the host whose command line has a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


async def gone(word: str, seconds: float = 5.0) -> bool:
    """Wait until no process of the host has a word in its command line."""
    deadline = time.monotonic() + seconds
    while host_processes(word):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def unique_sleep() -> str:
    """Return a number of seconds that no other process sleeps for."""
    return f"{50_000 + secrets.randbelow(10_000)}.{secrets.randbelow(10**6):06}"


# A box


async def test_a_command_runs_as_root_in_its_home_with_a_clean_environment(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_TEST_SECRET", "of the host")
    async with sandbox.box(BOUNDS) as box:
        assert (await script(box, "id -u; pwd; echo $HOME")).split() == ["0", "/root", "/root"]
        shell = await box.shell()
        for environment in (await script(box, "env"), text(await shell.run("env", seconds=SECONDS))):
            assert "of the host" not in environment
            assert "PATH=" in environment


async def test_a_command_gets_its_input_and_gives_its_status(box: Box) -> None:
    assert text(await box.run(["cat"], seconds=SECONDS, stdin=b"a\nb")) == "a\nb"
    assert (await box.run(["bash", "-c", "exit 7"], seconds=SECONDS)).status == 7
    assert (await box.run(["bash", "-c", "kill -9 $$"], seconds=SECONDS)).status == 137
    assert (await box.run(["there-is-no-such-program"], seconds=SECONDS)).status in (126, 127)
    large = os.urandom(3 << 20)
    assert text(await box.run(["wc", "-c"], seconds=SECONDS, stdin=large)).strip() == str(len(large))


DESCRIPTORS = """
import os
for number in range(3, 200):
    if os.path.islink(f"/proc/self/fd/{number}"):
        print(number, os.readlink(f"/proc/self/fd/{number}"))
"""


async def test_a_command_inherits_no_descriptor(box: Box) -> None:
    await box.run(["tee", "/root/list.py"], seconds=SECONDS, stdin=DESCRIPTORS.encode())
    command = ["python3", "/root/list.py"]
    assert text(await box.run(command, seconds=SECONDS)) == ""
    assert text(await box.judge(command, seconds=SECONDS)) == ""
    shell = await box.shell()
    from_shell = text(await shell.run("python3 /root/list.py", seconds=SECONDS)).splitlines()
    assert all(line.split(" ")[1].startswith(("pipe:", "/dev/null")) for line in from_shell), from_shell


async def test_root_administers_its_box(box: Box) -> None:
    done = await script(
        box,
        """set -e
        useradd -m -s /bin/bash alice
        echo data > /usr/stock.log; chown alice:alice /usr/stock.log; chmod 640 /usr/stock.log
        su alice -c 'cat /usr/stock.log; id -un; touch /etc/forbidden' || echo refused
        stat -c '%U %a' /usr/stock.log
        su alice -c 'passwd -S alice' | cut -d ' ' -f 1
        cd /tmp && mkdir d && echo x > d/f && tar czf d.tgz d && rm -r d && tar xzf d.tgz && cat d/f
        rm /usr/bin/wc; echo gone > /usr/bin/wc; cat /usr/bin/wc""",
    )
    words = [line for line in done.splitlines() if "forbidden" not in line]
    assert words == ["data", "alice", "refused", "alice 640", "alice", "x", "gone"]


async def test_boxes_do_not_see_one_another_nor_the_host(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "host").write_text("of the host")
    async with sandbox.box(BOUNDS) as one, sandbox.box(BOUNDS) as other:
        await script(one, "touch /tmp/mine /usr/mine; (sleep 500 &) ")
        assert await script(other, "ls /tmp/mine /usr/mine 2>/dev/null; pgrep -c sleep") == "0\n"
        assert await script(one, f"cat {tmp_path}/host /proc/1/root{tmp_path}/host 2>/dev/null; true") == ""
        assert (
            await script(one, "ls /var/run/docker.sock /run/docker.sock /sys/fs/cgroup/*/cgroup.procs 2>&-; true") == ""
        )
    async with sandbox.box(BOUNDS) as later:
        assert await script(later, "ls /tmp/mine /usr/mine 2>/dev/null; true") == ""


async def test_there_is_no_network_but_loopback(box: Box) -> None:
    found = await script(
        box,
        """cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '
        python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 2)' 2>&1 | tail -1""",
    )
    assert found.split("\n")[0] == "lo"
    assert "Error" in found


async def test_sixteen_boxes_at_a_time(sandbox: Sandbox) -> None:
    async def play(number: int) -> str:
        async with sandbox.box(BOUNDS) as box:
            shell = await box.shell()
            await shell.run(f"n={number}; echo $n > /tmp/n", seconds=60)
            return text(await shell.run("echo $n $(cat /tmp/n)", seconds=60)).strip()

    assert await asyncio.gather(*map(play, range(16))) == [f"{number} {number}" for number in range(16)]


async def test_the_protocol_tells_the_back_end_and_the_root(sandbox: Sandbox) -> None:
    told = sandbox.protocol()
    assert told == sandbox.protocol()
    assert sandbox.name in str(told)
    assert "sha256:" in str(told)
    assert await sandbox.healthy()


async def test_a_box_lives_as_long_as_its_bound(sandbox: Sandbox) -> None:
    word = unique_sleep()
    async with sandbox.box(Bounds(seconds=3)) as box:
        # What its end kills has not ended by itself; nor has what comes too late to begin.
        with pytest.raises(SandboxError):
            await box.run(["bash", "-c", f"sleep {word}"], seconds=SECONDS)
        with pytest.raises(SandboxError):
            await box.run(["true"], seconds=SECONDS)
        assert await gone(word, SECONDS)


# A shell


async def test_folder_variables_functions_and_aliases_last(box: Box) -> None:
    shell = await box.shell()
    first = await shell.run(
        "cd /tmp; x='a  b'; f() { echo \"f $1\"; }; alias hi='echo hello'; export Y=2", seconds=SECONDS
    )
    assert first == Finished(status=0, output=b"")
    assert (
        text(await shell.run('pwd; echo "$x"; f 1; hi; bash -c "echo $Y"', seconds=SECONDS))
        == "/tmp\na  b\nf 1\nhello\n2\n"
    )


async def test_scripts_arrive_whole(box: Box) -> None:
    shell = await box.shell()
    long = "\n".join(f"echo {number}" for number in range(3000))
    assert text(await shell.run(long, seconds=SECONDS)).split() == [str(number) for number in range(3000)]
    quoted = "cat <<'EOF'\n$HOME `x` \"q\" 'q' \\ é 日本\nEOF\nprintf '%s|' \"a\nb\" $'\\t'"
    assert text(await shell.run(quoted, seconds=SECONDS)) == "$HOME `x` \"q\" 'q' \\ é 日本\na\nb|\t|"
    assert text(await shell.run("echo no newline at the end\\", seconds=SECONDS)).startswith("no newline")
    assert text(await shell.run("", seconds=SECONDS)) == ""
    assert text(await shell.run("# only a comment", seconds=SECONDS)) == ""


async def test_output_keeps_its_order_and_its_bytes(box: Box) -> None:
    shell = await box.shell()
    mixed = await shell.run("for i in 1 2 3; do echo out $i; echo error $i >&2; done; printf 'end'", seconds=SECONDS)
    assert mixed.output == b"out 1\nerror 1\nout 2\nerror 2\nout 3\nerror 3\nend"
    assert (await shell.run("printf '\\xff\\x00\\r\\n\\033[1m'", seconds=SECONDS)).output == b"\xff\x00\r\n\x1b[1m"
    assert text(await shell.run("tty; echo $-", seconds=SECONDS)).startswith("not a tty")


async def test_the_status_is_the_scripts(box: Box) -> None:
    shell = await box.shell()
    assert (await shell.run("false", seconds=SECONDS)).status == 1
    assert text(await shell.run("echo $?", seconds=SECONDS)) == "1\n"
    assert (await shell.run("no-such-program", seconds=SECONDS)).status == 127
    assert (await shell.run("if then", seconds=SECONDS)).status not in (0, None)
    assert (await shell.run("(exit 300)", seconds=SECONDS)).status == 44
    assert shell.alive


@pytest.mark.parametrize(
    "line",
    ["break", "continue", "return 3", "set -x; true", "set -u", "trap 'echo t' DEBUG", "exec 2>/dev/null", "IFS=x"],
)
async def test_odd_scripts_leave_the_shell_usable(box: Box, line: str) -> None:
    shell = await box.shell()
    assert (await shell.run(line, seconds=SECONDS)).status is not None
    assert "still here" in text(await shell.run("echo still here", seconds=SECONDS))


async def test_signals_can_be_trapped(box: Box) -> None:
    shell = await box.shell()
    for name in ("HUP", "INT", "TERM", "QUIT", "USR1", "PIPE"):
        trapped = await shell.run(f"trap 'echo {name}' {name}; kill -{name} $$; trap - {name}", seconds=SECONDS)
        assert trapped == Finished(status=0, output=f"{name}\n".encode())


async def test_commands_have_no_input_to_wait_for(box: Box) -> None:
    shell = await box.shell()
    assert text(
        await shell.run("cat; read x || echo none; python3 -c 'print(input())' 2>&1 | tail -1", seconds=SECONDS)
    ) == ("none\nEOFError: EOF when reading a line\n")


async def test_a_shell_that_exits_has_ended(box: Box) -> None:
    shell = await box.shell()
    assert await shell.run("echo bye; exit 3", seconds=SECONDS) == Finished(status=3, output=b"bye\n")
    assert not shell.alive
    with pytest.raises(SandboxError):
        await shell.run("true", seconds=SECONDS)
    again = await box.shell()
    assert text(await again.run("echo again", seconds=SECONDS)) == "again\n"
    assert (await again.run("kill -9 $$", seconds=SECONDS)).status == 137


async def test_background_jobs_survive_and_do_not_hold_the_shell(box: Box) -> None:
    shell = await box.shell()
    before = time.monotonic()
    await shell.run("(while sleep 0.1; do echo tick; done) & echo begun", seconds=SECONDS)
    assert time.monotonic() - before < 5
    deadline = time.monotonic() + SECONDS
    while "tick" not in text(await shell.run("true", seconds=SECONDS)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert (await shell.run("exit", seconds=SECONDS)).status == 0


async def test_a_command_past_its_time_is_killed_with_all_it_began(box: Box) -> None:
    shell, word = await box.shell(), unique_sleep()
    before = time.monotonic()
    late = await shell.run(f"echo begun; setsid sleep {word} & sleep {word}", seconds=1.0)
    assert time.monotonic() - before < 8
    assert (late.status, late.output, shell.alive) == (None, b"begun\n", False)
    assert await gone(word)
    assert text(await (await box.shell()).run("echo new", seconds=SECONDS)) == "new\n"


async def test_output_is_bounded_while_it_streams(box: Box) -> None:
    shell = await box.shell()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    flood = await shell.run("head -c 1000000000 /dev/zero; echo end", seconds=120)
    assert (flood.status, len(flood.output), flood.cut) == (0, BOUNDS.output_bytes, True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert text(await shell.run("echo after", seconds=SECONDS)) == "after\n"
    run = await box.run(["bash", "-c", "head -c 10000000 /dev/zero"], seconds=SECONDS)
    assert (run.status, len(run.output), run.cut) == (0, BOUNDS.output_bytes, True)


async def test_a_broken_startup_file_does_not_break_the_session(box: Box) -> None:
    await script(box, "echo 'exit 1' > ~/.bash_profile")
    assert not (await box.shell()).alive
    await script(box, "echo 'echo a greeting' > ~/.bash_profile")
    assert text(await (await box.shell()).run("echo clean", seconds=SECONDS)) == "clean\n"


# A judge

TAMPER = r"""
mkdir -p /tmp/bin
for program in python3 bash sh cat ls grep test awk; do
  printf '#!/bin/bash\necho tampered\nexit 0\n' > /tmp/bin/$program; chmod +x /tmp/bin/$program
done
cp /tmp/bin/* /usr/local/bin/
echo 'export PATH=/tmp/bin:$PATH; echo tampered' > /tmp/env
for file in ~/.bashrc ~/.bash_profile ~/.profile /etc/profile /etc/bash.bashrc; do cat /tmp/env >> $file; done
for folder in /usr/lib/python3/dist-packages ~/.local/lib/python3.11/site-packages /root; do
  mkdir -p $folder; echo 'print("tampered")' | tee $folder/sitecustomize.py > $folder/usercustomize.py
  echo 'import os; print("tampered")' > $folder/x.pth
done
for v in /usr/lib/python3.*/; do mkdir -p /usr/local/lib/$(basename $v)/dist-packages
  echo 'import os; print("tampered")' > /usr/local/lib/$(basename $v)/dist-packages/x.pth
  echo 'print("tampered")' > $v/json/__init__.py; done
rm -f /etc/alternatives/awk; ln -s /tmp/bin/awk /etc/alternatives/awk
echo 'BASH_ENV=/tmp/env' >> /etc/environment
cp /tmp/bin/cat /usr/bin/grep
echo /tmp/evil.so > /etc/ld.so.preload
echo judged > /root/result
rm -f /usr/bin/python3*; cp /tmp/bin/python3 /usr/bin/python3
rm -f /usr/bin/bash; cp /tmp/bin/bash /usr/bin/bash
true
"""


async def test_a_judge_sees_the_files_and_trusts_no_program_of_the_box(box: Box) -> None:
    shell = await box.shell()
    await shell.run(TAMPER, seconds=SECONDS)
    check = "import json, pathlib; print(json.dumps(pathlib.Path('/root/result').read_text()))"
    assert text(await box.judge(["python3", "-I", "-c", check], seconds=SECONDS)) == '"judged\\n"\n'
    assert (
        text(await box.judge(["bash", "-c", "cat /root/result; echo x | grep -c x"], seconds=SECONDS)) == "judged\n1\n"
    )
    assert text(await box.judge(["awk", "BEGIN { print 5 }"], seconds=SECONDS)) == "5\n"
    assert (await box.judge(["cat"], seconds=SECONDS, stdin=b"given")).output == b"given"
    assert (await box.judge(["bash", "-c", "exit 4"], seconds=SECONDS)).status == 4


async def test_a_judge_gets_a_clean_environment(box: Box) -> None:
    environment = text(await box.judge(["env"], seconds=SECONDS))
    names = {line.split("=")[0] for line in environment.splitlines()}
    assert not names & {"BASH_ENV", "ENV", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP"}
    assert "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n" in environment


async def test_what_a_judge_writes_is_dropped(box: Box) -> None:
    await script(box, "echo before > /root/kept; echo x > /usr/local/bin/tool")
    judged = await box.judge(
        ["bash", "-c", "echo after > /root/kept; rm /usr/local/bin/tool; cat /root/kept"], seconds=SECONDS
    )
    assert text(judged) == "after\n"
    assert await script(box, "cat /root/kept /usr/local/bin/tool") == "before\nx\n"


async def test_a_judge_is_bounded(box: Box) -> None:
    word = unique_sleep()
    late = await box.judge(["bash", "-c", f"sleep {word} & sleep {word}"], seconds=1.0)
    assert late.status is None
    assert await gone(word)
    flood = await box.judge(["bash", "-c", "head -c 3000000 /dev/zero"], seconds=SECONDS)
    assert (len(flood.output), flood.cut) == (BOUNDS.output_bytes, True)


# Ways out


async def test_a_fork_bomb_is_contained(sandbox: Sandbox) -> None:
    word = unique_sleep()
    async with sandbox.box(BOUNDS) as box:
        shell = await box.shell()
        bomb = await shell.run(
            f"f() {{ sleep {word} & f | f & }}; f; for i in $(seq 500); do sleep {word} & done; wait", seconds=3.0
        )
        assert bomb.status != 0
        assert len(host_processes(word)) <= BOUNDS.processes
    assert await gone(word)


async def test_memory_is_bounded(box: Box) -> None:
    hog = await box.run(["python3", "-c", "x = bytearray(600 << 20); print('had it')"], seconds=SECONDS)
    assert hog.status not in (0, None)
    assert b"had it" not in hog.output


async def test_the_disk_is_bounded(sandbox: Sandbox) -> None:
    async with sandbox.box(BOUNDS) as box:
        try:
            for folder in ("/root", "/tmp", "/usr"):
                code = f"for i in 1 2 3 4; do head -c 40000000 /dev/zero > {folder}/fill$i || break; done; true"
                await box.run(["bash", "-c", code], seconds=SECONDS)
            written = await script(box, "cat /root/fill* /tmp/fill* /usr/fill* | wc -c")
        except SandboxError:
            return  # a box that writes too much may be ended instead
        assert int(written) <= BOUNDS.disk_bytes


async def test_many_small_files_are_bounded(sandbox: Sandbox) -> None:
    if sandbox.name != "bubblewrap":
        pytest.skip("a container's files are bounded by their bytes alone")
    async with sandbox.box(BOUNDS) as box:
        code = "import pathlib\nfor i in range(10**6): pathlib.Path(f'/tmp/{i}').touch()"
        assert (await box.run(["python3", "-c", code], seconds=120)).status == 1


@pytest.mark.parametrize(
    "attempt",
    [
        "echo 1 > /proc/sys/kernel/panic",
        "echo h > /proc/sysrq-trigger",
        "echo /tmp/x > /proc/sys/kernel/core_pattern",
        "head -c 1 /proc/kcore",
        "cat /proc/1/environ",
        "echo -1000 > /proc/1/oom_score_adj",
        "dd if=/dev/zero of=/proc/1/mem bs=1 count=1 seek=4194304",
        "readlink /proc/1/fd/0",
        "readlink /proc/1/cwd",
        "mount -t tmpfs none /mnt",
        "mount -t proc none /mnt",
        "mount --bind / /mnt",
        "umount /proc",
        "mknod /tmp/disk b 8 0 && head -c 1 /tmp/disk",
        "unshare --mount true",
        "unshare --user --map-root-user true",
        "nsenter --target 1 --mount true",
        "chroot /proc/1/root mount -t tmpfs none /mnt",
        "ip link add dummy0 type dummy || exit 1",
        "date --set 2001-01-01",
        "hostname other",
        "swapoff -a && exit 1",
        "insmod /tmp/none.ko",
        "reboot -f",
        "dmesg --clear",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)'",
        "python3 -c 'import ctypes; exit(ctypes.CDLL(None).syscall(304, -1, 0, 0) < 0)'",
        "python3 -c 'import os; os.setpriority(os.PRIO_PROCESS, 0, -20)'",
        "ls /sys/kernel/security /sys/fs/cgroup/memory /sys/class/net/eth0",
    ],
)
async def test_what_no_command_may_do_fails(box: Box, attempt: str) -> None:
    finished = await box.run(["bash", "-c", f"{attempt} 2>/dev/null"], seconds=SECONDS)
    assert finished.status not in (0, None), finished
    assert text(await box.run(["echo", "alive"], seconds=SECONDS)) == "alive\n"


async def test_the_first_process_cannot_be_ended_from_inside(box: Box) -> None:
    for name in ("KILL", "TERM", "STOP", "SEGV", "INT"):
        await script(box, f"kill -{name} 1; true")
    assert await script(box, "echo alive") == "alive\n"


async def test_signals_reach_no_process_of_the_host(box: Box) -> None:
    await box.run(["bash", "-c", f"kill -9 {os.getpid()} {os.getppid()}; kill -9 -1"], seconds=SECONDS)
    assert await script(box, "echo alive") == "alive\n"


async def test_links_lead_nowhere_outside(box: Box, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("of the host")
    await script(box, f"ln -s {target} /root/link; ln -s /proc/1/root{target} /root/link2; echo x > /root/link; true")
    assert target.read_text() == "of the host"
    judged = await box.judge(["bash", "-c", "cat /root/link2; echo y > /root/link; true"], seconds=SECONDS)
    assert b"of the host" not in judged.output
    assert target.read_text() == "of the host"


async def test_links_in_place_of_system_folders_mislead_no_judge(box: Box) -> None:
    await script(
        box,
        """mkdir -p /tmp/etc/alternatives /tmp/local; rm -rf /usr/local /etc/alternatives /etc/ld.so.cache
        ln -s /tmp/local /usr/local; ln -s /root /etc/alternatives; ln -s /root/result /etc/ld.so.cache
        mv /etc /etc2; ln -s /etc2 /etc; mv /usr/libexec /usr/libexec2; ln -s /etc2 /usr/libexec; true""",
    )
    assert text(await box.judge(["bash", "-c", "echo $((1 + 1)); ls /root"], seconds=SECONDS)).split()[0] == "2"
    assert await script(box, "echo alive") == "alive\n"


async def test_a_daemon_ends_with_its_box(sandbox: Sandbox) -> None:
    word = unique_sleep()
    async with sandbox.box(BOUNDS) as box:
        shell = await box.shell()
        daemon = f"import os, time\nif os.fork() or (os.setsid(), os.fork())[1]: os._exit(0)\ntime.sleep({word})"
        await shell.run(f"python3 -c '{daemon}'; nohup setsid sleep {word} >/dev/null 2>&1 & disown", seconds=SECONDS)
        await asyncio.sleep(0.3)
        assert host_processes(word)
    assert await gone(word)


async def test_cancelled_sessions_leave_nothing(sandbox: Sandbox) -> None:
    word = unique_sleep()

    async def play() -> None:
        async with sandbox.box(BOUNDS) as box:
            shell = await box.shell()
            await shell.run(f"sleep {word}", seconds=SECONDS)

    task = asyncio.create_task(play())
    deadline = time.monotonic() + SECONDS
    while not host_processes(word) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(word)
