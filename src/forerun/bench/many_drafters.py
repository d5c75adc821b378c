"""One engine with many drafters, each request naming the one that guesses for it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

from forerun.bench.teacher_forcing import drafter_for
from forerun.engine import LLM, SpeculativeConfig
from forerun.engine.engine import Engine
from forerun.engine.guarded_drafters import GuardedDrafters
from forerun.engine.intake import Intake
from forerun.engine.planner import FixedDepth
from forerun.engine.speculation import Speculation


def with_drafters(llm: LLM, configs: Mapping[str, SpeculativeConfig]) -> LLM:
    """The same loaded model. No controller decides: whatever a request allows is spent.

    Draft models have room for as many requests as the engine seats, so nobody waits for them.
    """
    twin = copy.copy(llm.with_speculation(None))
    num_seats = llm.max_num_seqs
    drafters = {name: drafter_for(llm, config, None, num_seats) for name, config in configs.items()}
    num_trees = max(config.num_trees for config in configs.values())
    depth = max(config.depth for config in configs.values())
    num_branches = max(config.num_branches for config in configs.values())
    guarded = GuardedDrafters(drafters, llm.model.config.vocab_size, num_trees)
    planner = FixedDepth(next(iter(drafters)), depth, num_branches)
    core = replace(twin.engine.core, speculation=Speculation(guarded, planner))
    twin.engine = Engine(core)
    twin.intake = Intake(twin.tokenizer, core)
    return twin
