"""What the project promises of its speed, held against the cells.

A promise about classes passes only if all of them were measured, with enough pairs; it may fail
before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from forerun.bench.measure.bootstrap import geometric_mean
from forerun.bench.records.cells import Cell
from forerun.bench.measure.contenders import DEFAULT, PLAIN
from forerun.bench.measure.prediction import TOLERANCE
from forerun.bench.prompts.workloads import KINDS, Kind

NEVER_SLOWER: Final = 0.95
FREE_AT_LEAST: Final = 1.0
COPY_AT_LEAST: Final = 2.0
OVER_LLAMACPP: Final = 3.0
QWEN_OVER_LLAMACPP: Final = 2.5
SMALL_PROMPTS: Final = 2.0
LARGE_PROMPTS: Final = 1.0
ENOUGH_PAIRS: Final = 20
_LLAMACPP: Final = "llamacpp"


@dataclass(frozen=True)
class Outcome:
    """One requirement: `passed` is None where it was not measured."""

    requirement: str
    found: str
    passed: bool | None

    @property
    def word(self) -> str:
        return {True: "PASS", False: "FAIL", None: "NOT MEASURED"}[self.passed]


def judge_record(
    cells: Sequence[Cell], model: str, prompt_tokens: int | None = None
) -> list[Outcome]:
    """One outcome per requirement, in the order in which people ask."""
    ours = [cell for cell in cells if cell.contender == DEFAULT]
    outcomes = [
        _same_tokens(cells),
        _enough_pairs(ours),
        _never_slower(ours),
        _mean_at_least(ours, Kind.FREE, FREE_AT_LEAST),
        _mean_at_least(ours, Kind.COPY, COPY_AT_LEAST),
        _over_llamacpp(cells, ours),
    ]
    if _is_large(model):
        outcomes.append(_qwen_edits_code(cells, ours))
    if prompt_tokens is not None:
        outcomes.append(_prompts_over_llamacpp(cells, model, prompt_tokens))
    return [*outcomes, _draft_model_as_predicted(cells)]


def _same_tokens(cells: Sequence[Cell]) -> Outcome:
    requirement = "the same tokens as plain decoding"
    own = [c for c in cells if not _is_peer(c) and c.contender != PLAIN]
    speculative = [c for c in own if c.same_tokens is not None]
    if not speculative:
        return Outcome(requirement, "nothing speculated", None)
    wrong = [_place(c) for c in speculative if c.same_tokens != 1]
    found = f"different in {', '.join(wrong)}" if wrong else "identical in every cell"
    return Outcome(requirement, found, not wrong)


def _enough_pairs(ours: Sequence[Cell]) -> Outcome:
    fewest = min((cell.num_pairs for cell in ours), default=None)
    return Outcome(
        f"at least {ENOUGH_PAIRS} interleaved pairs per class",
        "nothing measured" if fewest is None else f"{fewest} in the class with the fewest",
        None if fewest is None else fewest >= ENOUGH_PAIRS,
    )


def _never_slower(ours: Sequence[Cell]) -> Outcome:
    requirement = f"95 % lower bound of the ratio to plain ≥ {NEVER_SLOWER} in every class"
    bounds = [(cell.ratio.low, cell.workload) for cell in ours if cell.ratio]
    if not bounds:
        return Outcome(requirement, "nothing measured", None)
    low, workload = min(bounds)
    found = f"lowest {low:.3f}, in {workload}"
    return _settled(requirement, found, low >= NEVER_SLOWER, ours, tuple(KINDS))


def _mean_at_least(ours: Sequence[Cell], kind: Kind, wanted: float) -> Outcome:
    requirement = f"geometric mean over {kind} classes ≥ {wanted:g}"
    of_kind = [cell for cell in ours if cell.kind == kind]
    mean = geometric_mean([cell.ratio.median for cell in of_kind if cell.ratio])
    whole = geometric_mean([cell.ratio_whole.median for cell in of_kind if cell.ratio_whole])
    if mean is None or whole is None:
        return Outcome(requirement, "nothing measured", None)
    found = f"{mean:.2f} decoding, {whole:.2f} with the prompt's time"
    return _settled(requirement, found, mean >= wanted, of_kind, _names(kind))


def _over_llamacpp(cells: Sequence[Cell], ours: Sequence[Cell]) -> Outcome:
    copying = [cell for cell in ours if cell.kind == Kind.COPY]
    requirement = f"copy-heavy ≥ {OVER_LLAMACPP:g} × llama.cpp's best mode"
    return _against_best_mode(cells, copying, requirement, OVER_LLAMACPP, _names(Kind.COPY))


def _qwen_edits_code(cells: Sequence[Cell], ours: Sequence[Cell]) -> Outcome:
    editing = [cell for cell in ours if cell.workload == "edit-code"]
    requirement = f"Qwen2.5-Coder edits code ≥ {QWEN_OVER_LLAMACPP:g} × llama.cpp's best mode"
    return _against_best_mode(cells, editing, requirement, QWEN_OVER_LLAMACPP, ("edit-code",))


def _against_best_mode(
    cells: Sequence[Cell],
    ours: Sequence[Cell],
    requirement: str,
    wanted: float,
    classes: Sequence[str],
) -> Outcome:
    """Tokens per second against the fastest of the peer's modes, class by class."""
    ratios, modes, compared = [], set[str](), list[Cell]()
    for cell in ours:
        modes_here = [c for c in cells if c.workload == cell.workload and _is_llamacpp(c)]
        best = max(modes_here, key=lambda c: c.tokens_per_second or 0.0, default=None)
        if best and best.tokens_per_second and cell.tokens_per_second:
            ratios.append(cell.tokens_per_second / best.tokens_per_second)
            modes.add(best.contender)
            compared += [cell, best]
    mean = geometric_mean(ratios)
    if mean is None:
        return Outcome(requirement, "run with --peers llamacpp", None)
    fewest = min(cell.num_pairs for cell in compared)
    found = f"{mean:.2f} × ({', '.join(sorted(modes))}), {fewest} pairs"
    return _settled(requirement, found, mean >= wanted, compared, classes)


def _prompts_over_llamacpp(cells: Sequence[Cell], model: str, prompt_tokens: int) -> Outcome:
    """Time to first token of a prompt of known length, in the class where it is worst."""
    wanted = LARGE_PROMPTS if _is_large(model) else SMALL_PROMPTS
    requirement = f"prompts of {prompt_tokens} tokens ≥ {wanted:g} × as fast as llama.cpp"
    peers = [c for c in cells if _is_llamacpp(c) and c.contender.endswith("/plain")]
    found = [(1 / c.ratio_ttft.median, c) for c in peers if c.ratio_ttft]
    if not found:
        return Outcome(requirement, "run with --peers llamacpp", None)
    ratio, cell = min(found, key=lambda pair: pair[0])
    assert cell.ratio_ttft is not None
    bounds = f"[{1 / cell.ratio_ttft.high:.2f}, {1 / cell.ratio_ttft.low:.2f}]"
    text = f"{ratio:.2f} {bounds} in {cell.workload}, {cell.num_pairs} pairs"
    classes = [peer.workload for _, peer in found]
    return _settled(requirement, text, ratio >= wanted, peers, classes)


def _draft_model_as_predicted(cells: Sequence[Cell]) -> Outcome:
    requirement = f"a draft model's speedup on stories within {TOLERANCE:.0%} of the prediction"
    found = [
        (abs(cell.prediction.error), cell)
        for cell in cells
        if cell.workload == "story" and "draft_model" in cell.contender and cell.prediction
    ]
    if not found:
        return Outcome(requirement, "run with --draft-model on class story", None)
    error, cell = max(found, key=lambda pair: pair[0])
    p = cell.prediction
    assert p is not None
    text = (
        f"{cell.contender}: α {p.alpha:.2f}, c {p.draft_step:.3f}, predicted {p.predicted:.2f}, "
        f"measured {p.measured:.2f}: off by {error:.0%} at most, {cell.num_pairs} pairs"
    )
    return _settled(requirement, text, error <= TOLERANCE, [c for _, c in found], ("story",))


def _settled(
    requirement: str, found: str, passed: bool, cells: Sequence[Cell], classes: Sequence[str]
) -> Outcome:
    """A failure stands; a pass waits until all cells of every class have their pairs."""
    short = {cell.workload for cell in cells if cell.num_pairs < ENOUGH_PAIRS}
    done = {cell.workload for cell in cells} - short
    missing = [name for name in classes if name not in done]
    if passed and missing:
        too_few = f"fewer than {ENOUGH_PAIRS} pairs in {', '.join(missing)}"
        return Outcome(requirement, f"{found}; {too_few}", None)
    return Outcome(requirement, found, passed)


def _names(kind: Kind) -> tuple[str, ...]:
    return tuple(name for name, of in KINDS.items() if of is kind)


def _is_large(model: str) -> bool:
    return "qwen2.5-coder" in model.lower()


def _is_peer(cell: Cell) -> bool:
    return "/" in cell.contender


def _is_llamacpp(cell: Cell) -> bool:
    return cell.contender.startswith(f"{_LLAMACPP}/")


def _place(cell: Cell) -> str:
    return f"{cell.workload} × {cell.contender}"
