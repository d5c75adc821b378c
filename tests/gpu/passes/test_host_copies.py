"""How the host waits for the device."""

from __future__ import annotations

from threading import Event, Thread

import pytest

torch = pytest.importorskip("torch")

from forerun.kernels.cuda.host_copies import HostCopy  # noqa: E402


class Done:
    """A device's event: ready when it was asked so often, or waited for."""

    def __init__(self, num_asked: int) -> None:
        self.num_left, self.was_waited_for = num_asked, False

    def query(self) -> bool:
        self.num_left -= 1
        return self.num_left <= 0

    def synchronize(self) -> None:
        self.was_waited_for = True


def copy_with(done: Done) -> HostCopy:
    copy = HostCopy(torch.zeros(2))
    copy.start(torch.tensor([3.0, 4.0]))
    copy._done = done
    return copy


def test_it_asks_until_the_device_is_done() -> None:
    done = Done(5)
    assert copy_with(done).wait().tolist() == [3, 4]
    assert (done.num_left, done.was_waited_for) == (0, False)


def test_other_threads_get_the_interpreter_meanwhile() -> None:
    done, over = Done(5), Event()
    other = Thread(target=over.wait)
    other.start()
    try:
        assert copy_with(done).wait().tolist() == [3, 4]
    finally:
        over.set()
        other.join()
    assert (done.num_left, done.was_waited_for) == (5, True)
