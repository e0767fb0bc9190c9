"""The first process of a box, and the line to it.

Decided here: it is a Perl script (Debian's essential packages have one) that reads its owner's end of a pipe. From
inside the box it can be neither killed (it is process 1 of its own namespace, and ignores what it could heed) nor
traced (having changed its user for a moment, it is closed to whoever lacks CAP_SYS_PTRACE). It reaps orphans, and kills
process trees on request without beginning a process, so that a fork bomb cannot keep it from it. It ends, and the box
with it, when the owner's end of the pipe closes, however the owner died, or when the box's time is up.
"""

from __future__ import annotations

import asyncio
import secrets

from harness.errors import SandboxError
from harness.sandbox.docker_wire import Stream

SCRIPT = r"""
$SIG{$_} = "IGNORE" for grep { !/^(KILL|STOP|NUM)/ } keys %SIG;
$> = 65534;
$> = 0;
sub end_tree {
  my ($root) = @_;
  my (%doomed, $more);
  do {
    $more = 0;
    opendir my $folder, "/proc" or return;
    for my $process (grep { /^\d+$/ && $_ > 1 && !$doomed{$_} } readdir $folder) {
      open my $file, "<", "/proc/$process/stat" or next;
      my $stat = join "", <$file>;
      my ($state, $parent, $group, $session) = split " ", substr $stat, 1 + rindex $stat, ")";
      next unless $process == $root || $session == $root || $doomed{$parent};
      kill STOP => $process;
      $doomed{$process} = $more = 1;
    }
  } while $more;
  kill KILL => keys %doomed;
}
my ($end, $heard) = (time + shift, "");
syswrite STDOUT, "ready\n";
while ((my $left = $end - time) > 0) {
  vec(my $waiting = "", 0, 1) = 1;
  last if select($waiting, undef, undef, $left) < 1;
  last unless sysread STDIN, $heard, 4096, length $heard;
  while ($heard =~ s/^(\d+) (\w+)\n//) {
    end_tree($1) if $1;
    syswrite STDOUT, "$2\n";
  }
}
"""
"""Stopped first and killed after, so that nothing that is still forking slips out between two looks at /proc."""

LISTEN = '$/ = "\\0"; eval <STDIN>'
NOBODY = 0
"""The process whose end is asked for where only an answer is wanted."""
ANSWER_SECONDS = 10.0
NOISE_BYTES = 1 << 20
"""Read at most while waiting for an answer: root in the box can write to its process 1's output."""


def command(seconds: float) -> list[str]:
    """Return the command line of a box's first process: short, for `ps` in the box shows it."""
    return ["/usr/bin/perl", "-e", LISTEN, str(max(1, round(seconds)))]


class Keeper:
    """The owner's end of the line."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._busy = asyncio.Lock()

    async def ready(self) -> None:
        """Say what it is to do, and wait until it does."""
        await self._stream.write(SCRIPT.encode() + b"\0")
        await self._until(b"ready\n")

    async def end_tree(self, process: int) -> None:
        """Kill a process of the box, its descendants and its session. SandboxError where that is not confirmed."""
        await self._ask(process)

    async def present(self) -> None:
        """Hear that the box is there. SandboxError where it is not."""
        await self._ask(NOBODY)

    async def _ask(self, process: int) -> None:
        async with self._busy:
            answer = secrets.token_hex(8)
            await self._stream.write(f"{process} {answer}\n".encode())
            await self._until(answer.encode() + b"\n")

    def close(self) -> None:
        """Let go of the line, which ends the box."""
        self._stream.close()

    async def _until(self, answer: bytes) -> None:
        heard, noise = b"", 0
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                while answer not in heard:
                    piece = await self._stream.read()
                    noise += len(piece)
                    if not piece or noise > NOISE_BYTES:
                        raise SandboxError("the box's first process has ended or been tampered with")
                    heard = heard[-len(answer) :] + piece
        except TimeoutError as error:
            raise SandboxError("the box's first process does not answer") from error
