"""`forerun alpha`: acceptance rates, computed from the distributions themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forerun.cli.bench.options import MOST_SEED, at_least, load_with_room, split
from forerun.cli.options.engine import kernel_settings, measuring_options
from forerun.cli.options.shared import bundle, takes, without
from forerun.cli.terminal.output import say_json
from forerun.cli.terminal.screen import screen
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption
from forerun.models.download.store import default_cache_dir
from forerun.option_fields import option
from forerun.types import SamplingParams

if TYPE_CHECKING:
    from forerun.bench.measure.alpha import AlphaSums, TargetText
    from forerun.bench.views.sheet import Sheet
    from forerun.engine import LLM, SpeculativeConfig

Row = dict[str, Any]
_LEGEND: Final = (
    "M_p: the target; M_q: the drafter; smpl: temperature; α: mean of Σ min(p, q) where the "
    "drafter guessed; coupled: under coupled noise; guessed: share of tokens with a guess",
    "l: α under that lenience; LOSSY, no token above p/l",
)


@dataclass(frozen=True)
class AlphaOptions:
    drafters: str = option(
        "unigram,bigram,ngram_tables,prompt_lookup",
        "Drafters to measure, separated by commas; --speculative-config, --draft-model and --head "
        "add theirs.",
    )
    temperatures: str = option("0,1", "Temperatures, separated by commas; 0 is greedy.")
    lenience: str = option(
        "", "Lenience factors (LOSSY), separated by commas, as in the paper's Table 5."
    )
    num_tokens: int = option(1000, "Tokens to generate at each temperature.")
    max_tokens: int = option(64, "Maximum tokens per answer.")
    workload: str = option("chat", "Workload class of the prompts.", "--class")
    num_layers: int | None = option(None, "Layers of the target in own_layers.")
    heads: tuple[Path, ...] | None = option(
        None, "Folder of a trained head to measure as well; repeatable.", "--head"
    )
    seed: int = option(0, "Seed of prompts and sampling.")
    json: bool = option(False, "Print JSON instead of tables.")

    def __post_init__(self) -> None:
        at_least("--seed", self.seed, 0, MOST_SEED)
        at_least("--num-tokens", self.num_tokens, 1)
        at_least("--max-tokens", self.max_tokens, 1)


# α needs guesses, and is measured one guess at a time.
_engine_options = without(
    measuring_options, "speculative_decoding", "spec_length", "no_speculation"
)
_SHAPE: Final = ("num_speculative_tokens", "num_branches", "adaptive")


@takes(options=bundle(AlphaOptions), engine=_engine_options)
def alpha(options: AlphaOptions, engine: EngineConfig) -> None:
    """Measure the acceptance rate α = E[Σ min(p, q)], and its coupled form, of drafters."""
    from forerun.bench.views.sheet import rounding

    workload, max_tokens, seed = options.workload, options.max_tokens, options.seed
    factors = _factors(options.lenience)
    warmth = _numbers(options.temperatures, "--temperatures")
    configs = _configs(engine, split(options.drafters), options.num_layers)
    configs |= _head_configs(options.heads or ())
    if not configs or not warmth:
        raise InvalidOption("--drafters and --temperatures must not be empty; drop the option.")
    llm = load_with_room(engine, max_tokens, speculative_config=None)
    rows: list[Row] = []
    for temperature in warmth:
        params = SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seed)
        texts = _texts(llm, workload, options.num_tokens, params)
        for name, config in configs.items():
            sums = _along(llm, config, texts, factors)
            rows.append(_row(Path(engine.model).name, name, temperature, sums, seed))
    rounded = kernel_settings(engine, llm)
    if options.json:
        say_json({"class": workload, "seed": seed, **rounded, "rows": rows}, indent=2)
    else:
        screen().print(_sheet(rows, factors, f"{workload}{rounding(rounded)}"))


def _configs(
    engine: EngineConfig, methods: list[str], num_layers: int | None
) -> dict[str, SpeculativeConfig]:
    """Return configs for the named methods and those of --speculative-config, by shown name."""
    from forerun.bench.measure.contenders import fixed_depth, own_options
    from forerun.speculation.config import AUTO

    given = engine.speculation
    assert given is not None, "there is no option for plain decoding"
    if shape := [name for name in _SHAPE if getattr(given, name) != getattr(AUTO, name)]:
        raise InvalidOption(f"α is measured one guess at a time; drop {', '.join(shape)}.")
    if given != AUTO:
        methods = list(dict.fromkeys([*methods, *given.parts]))
    own = own_options(given, num_layers)
    configs = {method: fixed_depth(method, 1, own.get(method, {})) for method in methods}
    return {_shown_name(config): config for config in configs.values()}


def _shown_name(config: SpeculativeConfig) -> str:
    if config.method == "own_layers":
        return f"first {config.num_layers} layers"
    if config.method == "draft_model":
        assert config.model is not None
        return Path(config.model).name
    return config.method


def _head_configs(heads: Sequence[Path]) -> dict[str, SpeculativeConfig]:
    from forerun.bench.measure.contenders import fixed_depth
    from forerun.drafters.heads import HeadFolder

    last = [path.name for path in heads]
    names = [path.name if last.count(path.name) == 1 else str(path) for path in heads]
    kinds = [HeadFolder(path).config.kind for path in heads]
    return {
        f"{kind} ({name})": fixed_depth(kind, 1, {"model": str(path)})
        for path, name, kind in zip(heads, names, kinds, strict=True)
    }


def _texts(llm: LLM, workload: str, num_tokens: int, params: SamplingParams) -> list[TargetText]:
    """Generate answers until there are `num_tokens` tokens; the last answer is cut to fit."""
    from forerun.bench.measure.alpha import target_text
    from forerun.bench.prompts.workloads import build_workloads

    assert params.max_tokens is not None
    assert params.seed is not None
    # An answer may be as short as one token.
    prompts = iter(build_workloads([workload], num_tokens, params.seed)[0].prompts)
    texts: list[TargetText] = []
    left = num_tokens
    with _status(f"generating {num_tokens} tokens at temperature {params.temperature:g} …"):
        while left > 0:
            num = min(left, params.max_tokens)
            asked = params.with_(max_tokens=num, seed=params.seed + len(texts))
            texts.append(target_text(llm, next(prompts).encode(llm.tokenizer), asked))
            left -= len(texts[-1].output)
    return texts


def _along(
    llm: LLM, config: SpeculativeConfig, texts: list[TargetText], factors: list[float]
) -> AlphaSums:
    from forerun.bench.measure.alpha import AlphaSums, add_text
    from forerun.bench.measure.teacher_forcing import drafter_for

    drafter = drafter_for(llm, config, default_cache_dir())
    sums = AlphaSums()
    with _status(f"measuring {config.method} …"):
        for idx, text in enumerate(texts):
            add_text(sums, text, drafter, factors, idx)
    return sums


def _row(target: str, drafter: str, temperature: float, sums: AlphaSums, seed: int) -> Row:
    from forerun.bench.measure.alpha import interval

    def shown(betas: list[list[float]]) -> Row | None:
        found = interval(betas, seed)
        if found is None:
            return None
        return {"alpha": found.median, "low": found.low, "high": found.high}

    return {
        "target": target,
        "drafter": drafter,
        "temperature": temperature,
        "num_tokens": sums.num_tokens,
        "guessed": sums.num_guessed / sums.num_tokens,
        "rejection": shown(sums.rejection),
        "coupled": shown(sums.coupled),
        "lenient": {f"{factor:g}": shown(betas) for factor, betas in sums.lenient.items()},
    }


def _sheet(rows: list[Row], factors: list[float], workload: str) -> Sheet:
    from forerun.bench.views.sheet import Sheet

    def two(found: Row | None) -> str:
        return "–" if found is None else f"{found['alpha']:.2f}"

    cells = []
    for row in rows:
        found = row["rejection"]
        spread = "" if found is None else f" [{found['low']:.2f}, {found['high']:.2f}]"
        method, bracket, folder = row["drafter"].partition(" (")
        drafter = f"{method.upper()}{bracket}{folder}"
        names = [row["target"], drafter, f"T={row['temperature']:g}"]
        figures = [two(found) + spread, two(row["coupled"]), f"{row['guessed']:.0%}"]
        cells.append([*names, *figures, *map(two, row["lenient"].values())])
    groups = [["α [95 %]", "coupled α", "guessed"], [f"l = {factor:g}" for factor in factors]]
    legend = _LEGEND if factors else _LEGEND[:1]
    return Sheet(f"α on {workload}", ["M_p", "M_q", "smpl"], groups, cells, legend=legend)


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in split(text)]
    except ValueError:
        raise InvalidOption(f"{option} {text!r} is not a list of numbers; write 1,0.5.") from None


def _factors(text: str) -> list[float]:
    """Parse lenience factors: p is divided by them, so 1 changes nothing and 0 has no meaning."""
    factors = _numbers(text, "--lenience")
    for factor in factors:
        if not 0 < factor <= 1:
            raise InvalidOption(f"--lenience {factor:g} is not allowed; give more than 0, up to 1.")
    return factors


def _status(text: str) -> Any:
    from rich.console import Console

    return Console(stderr=True).status(text)
