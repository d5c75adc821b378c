from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from forerun import Acceptance, InvalidOption, SamplingParams

NAN, INF = float("nan"), float("inf")


def test_defaults_are_plain_sampling() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p, params.min_p) == (1.0, 0, 1.0, 0.0)
    assert params.acceptance is Acceptance.COUPLED


def test_a_seed_promises_the_text_to_coupled_acceptance_alone() -> None:
    (seed,) = (field for field in fields(SamplingParams) if field.name == "seed")
    assert "with coupled acceptance it reproduces the text" in seed.metadata["help"]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, int])
def test_numbers_of_any_kind_become_floats(kind: type) -> None:
    """One float16 option would make float16 of all that is computed with it."""
    names = ("temperature", "top_p", "min_p", "repetition_penalty", "lenience")
    params = SamplingParams.from_dict({"acceptance": "lenient"} | {name: kind(1) for name in names})
    assert {type(getattr(params, name)) for name in names} == {float}


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint64, int])
def test_whole_numbers_of_any_kind_become_ints(kind: type) -> None:
    """Numpy's integers have a fixed width: what is computed from a seed could overflow."""
    names = ("n", "seed", "top_k", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs")
    params = SamplingParams.from_dict({name: kind(1) for name in names})
    assert {type(getattr(params, name)) for name in names} == {int}


def test_callers_habits_are_met() -> None:
    assert SamplingParams.from_dict({"temperature": np.float32(0.5)}).temperature == 0.5
    params = SamplingParams.from_dict(
        {"stop": "END", "logit_bias": {"3": 1}, "top_k": -1, "acceptance": "rejection"}
    )
    assert params.stop == ("END",)
    assert params.logit_bias == {3: 1.0}
    assert SamplingParams(logit_bias={np.int64(3): 1, 4.0: 2}).logit_bias == {3: 1.0, 4: 2.0}  # type: ignore[dict-item]
    assert SamplingParams.from_dict({"ignore_eos": np.True_}).ignore_eos is True
    assert params.top_k == 0
    assert params.acceptance is Acceptance.REJECTION
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")  # type: ignore[arg-type]
    assert SamplingParams(stop=None).stop == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", NAN), ("temperature", INF), ("temperature", "hot"),
        ("top_p", 0.0), ("top_p", 1.1), ("top_p", NAN), ("top_k", -2), ("top_k", 1.5),
        ("min_p", -0.1), ("min_p", 1.1), ("repetition_penalty", 0.0), ("repetition_penalty", INF),
        ("presence_penalty", NAN), ("frequency_penalty", INF), ("logit_bias", {1: NAN}),
        ("logit_bias", {-1: 1.0}), ("allowed_token_ids", ()), ("allowed_token_ids", (-1,)),
        ("n", 0), ("n", True), ("max_tokens", 0), ("min_tokens", -1), ("min_tokens", 17),
        ("stop", ("",)), ("logprobs", -1), ("seed", 2**64), ("seed", 0.5),
        ("stop_token_ids", (-1,)), ("stop_token_ids", ("a",)), ("stop", 5), ("n", 10**9),
        ("logit_bias", {"a": 1}), ("allowed_token_ids", ("a",)), ("temperature", 10**400),
        ("ignore_eos", "no"), ("skip_special_tokens", 3), ("include_stop_str_in_output", "x"),
        ("ignore_eos", None), ("logit_bias", {1.5: 1}), ("logit_bias", {np.float32(0.5): 1}),
        ("stop", {"a": 1}), ("stop_token_ids", {1: 1}), ("allowed_token_ids", {1: 1}),
        ("temperature", True), ("lenience", 0.0), ("lenience", 0.5), ("acceptance", "strict"),
    ],
)  # fmt: skip
def test_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=name):
        SamplingParams(**{name: value})


def test_unknown_options_point_at_the_nearest() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'temperature'"):
        SamplingParams.from_dict({"temprature": 1.0})
    with pytest.raises(InvalidOption, match="did you mean 'coupled'"):
        SamplingParams(acceptance="couple")  # type: ignore[arg-type]
    for caught in (TypeError, InvalidOption):
        with pytest.raises(caught, match="unknown option 'temprature'; did you mean 'temp"):
            SamplingParams(temprature=0)  # type: ignore[call-arg]
        with pytest.raises(caught, match="did you mean 'max_tokens'"):
            SamplingParams().with_(max_token=1)
    with pytest.raises(InvalidOption, match="sampling options are a mapping from names to values"):
        SamplingParams.from_dict(None)  # type: ignore[arg-type]


def test_lenience_needs_its_name() -> None:
    with pytest.raises(InvalidOption, match="lossy"):
        SamplingParams(lenience=0.5)
    assert SamplingParams(acceptance=Acceptance.LENIENT, lenience=0.5).lenience == 0.5


def test_with_changes_is_checked_again() -> None:
    assert SamplingParams(seed=3).with_(seed=4).seed == 4
    with pytest.raises(InvalidOption):
        SamplingParams().with_(top_p=2.0)
