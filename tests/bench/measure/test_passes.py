import pytest

from forerun.bench.measure.passes import PassReport, measure_passes
from forerun.engine.building import pass_timer
from forerun.kernels import ReferenceKernels
from forerun.models.llama import LlamaModel
from tests.models_llama.tiny import FAMILIES, TinyCheckpoint


def test_every_size_is_measured_in_every_round() -> None:
    model = LlamaModel.load(TinyCheckpoint(FAMILIES["smollm2"]), ReferenceKernels())
    report = measure_passes(pass_timer(model, 3), sizes=(1, 3), num_rounds=4)
    assert {size: len(times) for size, times in report.seconds.items()} == {1: 4, 3: 4}


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
    assert report.seconds == {1: [3, 5], 3: [4, 6]}
    assert report.as_dict()["is_complete"] is False


def test_ratios_are_taken_within_a_round() -> None:
    """A machine that slows down by ten between two rounds does not show."""
    report = PassReport({1: [1.0, 10.0, 100.0], 4: [2.0, 20.0, 200.0]})
    assert report.ratio(4) == 2
    assert report.as_dict()["passes"]["4"]["ratio"] == 2
