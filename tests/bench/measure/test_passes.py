import pytest

from forerun.bench.measure.passes import measure_passes
from forerun.kernels import ReferenceKernels
from forerun.models.llama import LlamaModel
from forerun.speculation.costs.calibration import pass_timer
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint


def test_every_size_is_measured_in_every_round() -> None:
    model = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), ReferenceKernels())
    report = measure_passes(pass_timer(model, 3), sizes=(1, 3), num_rounds=4)
    assert {size: row["num"] for size, row in report["passes"].items()} == {"1": 4, "3": 4}


@pytest.mark.parametrize(("num_passes", "num_rounds"), [(5, None), (6, 2), (7, 2)])
def test_whole_rounds_are_kept_after_an_interrupt(num_passes: int, num_rounds: int | None) -> None:
    """A warm-up of two passes comes first."""
    times = iter(range(1, num_passes + 1))

    def measure(_: int) -> float:
        for took in times:
            return took
        raise KeyboardInterrupt

    if num_rounds is None:
        with pytest.raises(KeyboardInterrupt):
            measure_passes(measure, sizes=(1, 3), num_rounds=4)
        return
    report = measure_passes(measure, sizes=(1, 3), num_rounds=4)
    assert [row["median_s"] for row in report["passes"].values()] == [4, 5]
    assert {row["num"] for row in report["passes"].values()} == {num_rounds}
    assert report["is_complete"] is False


def test_ratios_are_taken_within_a_round() -> None:
    """A machine that slows down tenfold between two rounds does not change the ratio."""
    times = iter([7.0, 7.0, 1.0, 2.0, 10.0, 20.0, 100.0, 200.0])
    report = measure_passes(lambda _: next(times), sizes=(1, 4), num_rounds=3)
    assert report["passes"]["4"]["ratio"] == 2
    assert report["is_complete"] is True
