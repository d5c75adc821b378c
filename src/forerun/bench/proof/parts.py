"""A proof split among processes, each with its own model and a part of the prompts."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait

from forerun.bench.proof.proof import Cell, Proof, Tell
from forerun.errors import ProofCutShort


class Parts:
    """`make` builds the same proof in `num_parts - 1` processes; the caller runs the first part."""

    def __init__(self, make: Callable[[], Proof], num_parts: int) -> None:
        self._num_parts = num_parts
        context = multiprocessing.get_context("spawn")  # threads and devices do not survive a fork
        self._ends: list[Connection] = []
        for part in range(1, num_parts):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (theirs, make, part, num_parts)
            context.Process(target=_run_part, args=arguments, daemon=True).start()
            theirs.close()
            self._ends.append(ours)

    def run(self, proof: Proof, tell: Tell) -> Iterator[Cell]:
        """Yield the cells of all parts as they are finished."""
        for cell in proof.run(tell, 0, self._num_parts):
            yield cell
            yield from self._told(tell, timeout=0)
        while self._ends:
            yield from self._told(tell, timeout=None)

    def _told(self, tell: Tell, timeout: float | None) -> Iterator[Cell]:
        ready = wait(self._ends, timeout)
        for end in [each for each in self._ends if each in ready]:
            try:
                found = end.recv()
            except EOFError:
                raise ProofCutShort(
                    "a process of the proof ended early, for the reason above; fewer --processes "
                    "need less memory."
                ) from None
            if isinstance(found, Cell):
                yield found
            elif found is None:
                self._ends.remove(end)
            else:
                tell(*found)


def _run_part(end: Connection, make: Callable[[], Proof], part: int, num_parts: int) -> None:
    """Run one part in this process; the parent, which writes the record, handles ^C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):  # the parent has ended
        for cell in make().run(lambda *told: end.send(told), part, num_parts):
            end.send(cell)
        end.send(None)
