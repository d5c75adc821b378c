"""A pass as one compiled call that any number of threads may join at any time.

    steps      0            1            2            …
    chunks   ▪▪▪▪▪▪ wait  ▪▪▪▪▪▪▪▪ wait  ▪▪▪▪▪▪
    counters taken, done                              one pair per step

A thread takes its share of the remaining chunks as one run, and repeats this until none is left;
then it waits for the chunks that other threads took. Runs are long at first, because memory is
best read in sequence, and short at the end, so that all threads end together. Every other thread
takes its runs from the back, because a core mostly needs in the next step what it wrote in this
one, or read of the KV cache (ADR 028).
A thread that joins late finds the early steps done; the pass does not wait for one that never
joins. Which thread runs a chunk does not affect the results. So the thread that owns a pass may
open it and do other work before it joins.
"""

from __future__ import annotations

from typing import Final

from numba import njit

from forerun.kernels.cpu.codegen.native import (
    call_operation,
    exchange,
    fetch_add,
    floats,
    int_at,
    ints,
    peek,
    yield_processor,
)

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

STEP_FIELDS: Final = 20
STEP_BYTES: Final = 8 * STEP_FIELDS
COUNTER_BYTES: Final = 128  # a step's counters, taken and done, each in its own cache line

# The control block, as int64 fields; those that threads contend for have their own cache lines.
CLOSED, NUM_OPENED, ACTIVE = 0, 1, 8
STEPS, NUM_STEPS, COUNTERS, NUM_THREADS, STOPPED, FOLLOWING, IS_WHOLE = range(16, 23)
SCRATCHES: Final = 24  # the first field of the addresses of each thread's scratch memory

# The description of the following pass, as int64 fields: `runtime/following.py`.
NUM_ROWS, DRAWN, TARGET, NUM_INTEGERS, NUM_COPIES, INTEGERS = range(6)
COPY_FIELDS: Final = 4  # source address, bytes from row to row, target address, floats per row

_BACK_BITS: Final = 32  # chunks taken from the back are counted above those from the front
_FRONT: Final = (1 << _BACK_BITS) - 1
_NUM_SPINS: Final = 200  # checks of a counter before the thread yields its core
_NUM_LOOKS: Final = 6000  # checks for the next pass: about a millisecond


@njit
def _wait_for(counter, value):
    spins = 0
    while peek(counter) < value:
        spins += 1
        if spins > _NUM_SPINS:
            yield_processor()


@njit
def _run_steps(control, thread):
    steps, counters = int_at(control, STEPS), int_at(control, COUNTERS)
    scratch, num_threads = int_at(control, SCRATCHES + thread), int_at(control, NUM_THREADS)
    is_front = (thread & 1) == 0
    first_open = 0  # the first step that has not been waited for
    for idx in range(int_at(control, NUM_STEPS)):
        step, taken = steps + idx * STEP_BYTES, counters + idx * COUNTER_BYTES
        operation, num_chunks, waits = int_at(step, 0), int_at(step, 1), int_at(step, 2)
        while True:
            if peek(control + 8 * STOPPED) != 0:
                return
            both = peek(taken)
            front, back = both & _FRONT, both >> _BACK_BITS
            left = num_chunks - front - back
            if left <= 0:
                break
            count = max(1, left // num_threads)
            more, first = count, front
            if not is_front:
                more, first = count << _BACK_BITS, num_chunks - back - count
            if exchange(taken, both, both + more) == both:
                for chunk in range(first, first + count):
                    call_operation(operation, step, chunk, scratch)
                fetch_add(taken + 64, count)
        if waits:
            for before in range(first_open, idx + 1):
                num_before = int_at(steps + before * STEP_BYTES, 1)
                _wait_for(counters + before * COUNTER_BYTES + 64, num_before)
            first_open = idx + 1


def join_pass(control, thread):
    """Join passes, on a thread that does not own them, until none has begun for a millisecond.

    Other fields of the control block are read only while ACTIVE counts this thread and the pass is
    not CLOSED: then the owner cannot change them. After a pass, a thread spins for the next one:
    it begins sooner than a thread that must be woken, and a core that slept is slow for a while.
    """
    while True:
        fetch_add(control + 8 * ACTIVE, 1)
        number = peek(control + 8 * NUM_OPENED)
        if peek(control + 8 * CLOSED) == 0:
            _run_steps(control, thread)
        fetch_add(control + 8 * ACTIVE, -1)
        spins = 0
        while peek(control + 8 * CLOSED) != 0 or peek(control + 8 * NUM_OPENED) == number:
            spins += 1
            if spins > _NUM_LOOKS:
                return
            if spins > _NUM_SPINS:
                yield_processor()


def run_pass(control, thread):
    """Open a pass, join it, and close it once all threads have left; its owner runs this.

    The counters are zero before and after.
    """
    _open(control)
    _run_steps(control, thread)
    _close(control)


def open_pass(control, _thread):
    """Open a pass for the other threads; its owner must call `end_pass` or `drop_pass` later."""
    _open(control)


def end_pass(control, thread):
    """Join an opened pass and close it once all threads have left. Then open the following one if
    FOLLOWING describes it and all its tokens were drawn, else set FOLLOWING to 0. IS_WHOLE tells
    whether the pass ran to its end, not dropped."""
    _run_steps(control, thread)
    _close(control)
    is_whole = peek(control + 8 * STOPPED) == 0
    ints(control)[IS_WHOLE] = 1 if is_whole else 0
    following = int_at(control, FOLLOWING)
    if following != 0:
        if is_whole and _go_on(following):
            _open(control)
        else:
            ints(control)[FOLLOWING] = 0


@njit
def _open(control):
    fetch_add(control + 8 * NUM_OPENED, 1)
    fetch_add(control + 8 * CLOSED, -peek(control + 8 * CLOSED))


@njit
def _go_on(following):
    """Copy the taps, and replace the pass's integers by those of the following one: first the
    tokens, which were just drawn. Return False if the host must draw one of them."""
    num_rows, drawn = int_at(following, NUM_ROWS), int_at(following, DRAWN)
    target, integers = ints(int_at(following, TARGET)), following + 8 * INTEGERS
    is_left = False
    for row in range(num_rows):
        token = int_at(drawn, row)
        ints(integers)[row] = token
        is_left = is_left or token < 0
    if is_left:
        return False
    num_integers = int_at(following, NUM_INTEGERS)
    for idx in range(int_at(following, NUM_COPIES)):
        copy = integers + 8 * (num_integers + COPY_FIELDS * idx)
        width, copied = int_at(copy, 3), floats(int_at(copy, 2))
        for row in range(num_rows):
            source = floats(int_at(copy, 0) + row * int_at(copy, 1))
            for column in range(width):
                copied[row * width + column] = source[column]
    for idx in range(num_integers):
        target[idx] = int_at(integers, idx)
    return True


def drop_pass(control, _thread):
    """Close a pass before its end: threads finish the chunks they have taken, and take no more."""
    fetch_add(control + 8 * STOPPED, 1)
    _close(control)


@njit
def _close(control):
    """Close a pass, wait until all threads have left it, and reset its counters. A closed pass may
    be closed again."""
    fetch_add(control + 8 * CLOSED, 1 - peek(control + 8 * CLOSED))
    spins = 0
    while peek(control + 8 * ACTIVE) > 0:
        spins += 1
        if spins > _NUM_SPINS:
            yield_processor()
    counters = ints(int_at(control, COUNTERS))
    for idx in range(int_at(control, NUM_STEPS)):
        counters[idx * COUNTER_BYTES // 8] = counters[(idx * COUNTER_BYTES + 64) // 8] = 0
