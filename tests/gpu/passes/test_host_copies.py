"""How the host waits for the device."""

from __future__ import annotations

from threading import Thread

import pytest

torch = pytest.importorskip("torch")

from forerun.kernels.cuda.host_copies import HostCopy  # noqa: E402


class Done:
    """A device event that is ready at the `num_asked`-th query."""

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


def test_the_main_thread_asks_until_the_device_is_done() -> None:
    done = Done(5)
    assert copy_with(done).wait().tolist() == [3, 4]
    assert (done.num_left, done.was_waited_for) == (0, False)


def test_a_thread_beside_others_leaves_the_interpreter_to_them() -> None:
    done, found = Done(5), list[float]()
    copy = copy_with(done)
    other = Thread(target=lambda: found.extend(copy.wait().tolist()))
    other.start()
    other.join()
    assert found == [3, 4]
    assert (done.num_left, done.was_waited_for) == (5, True)
