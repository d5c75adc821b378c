"""An engine's drafters, and what is measured of them before the first request."""

from __future__ import annotations

from dataclasses import dataclass, field

from forerun.drafters import Drafter, TappedDrafter, Target
from forerun.drafters.heads import Card
from forerun.engine.setup.trial import Trial
from forerun.errors import InvalidOption, InvalidWeights
from forerun.kernels import TappedKernels
from forerun.models.llama import LlamaModel
from forerun.speculation.config import SpeculativeConfig
from forerun.speculation.costs import Costs
from forerun.speculation.costs.calibration import calibrate
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost
from forerun.speculation.heads.promises import Promise, best_head, promised
from forerun.speculation.heads.timing import timed_head
from forerun.speculation.methods import METHODS, build_drafters, cards_of


@dataclass
class Drafting:
    """The drafters by name, and what is known of them so far."""

    drafters: dict[str, Drafter] = field(default_factory=dict)
    passes: PassCost | None = None  # None: no controller decides
    cards: dict[str, Card] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)  # of drafters with less than the usual
    left_out: dict[str, str] = field(default_factory=dict)  # drafters not used, and why
    shipped: Promise | None = None  # of the package's head, if that is among the drafters

    @classmethod
    def of(
        cls,
        config: SpeculativeConfig | None,
        target: Target,
        max_pass_tokens: int,
        max_num_seqs: int,
    ) -> Drafting:
        if config is None:
            return cls()
        drafting = cls()
        if config.adaptive:
            largest = min(max_pass_tokens, max_num_seqs * (1 + config.max_nodes))
            drafting.passes = calibrate(target.model, largest)
        drafting._add(config, target)
        if config.method == "auto":
            drafting._add_phrases(target)
            drafting._add_shipped(target)
        return drafting

    def _add(self, config: SpeculativeConfig, target: Target) -> None:
        self.drafters |= build_drafters(config, target)
        self.cards |= cards_of(config, target)

    def _add_phrases(self, target: Target) -> None:
        """Add the package's phrases, unless rounds begin early: those would wait for guesses that
        the host makes."""
        path, is_early = target.phrases, target.model.kernels.begins_early
        if path is None or is_early or self.passes is None:
            return
        try:
            self._add(SpeculativeConfig(method="phrases", model=str(path)), target)
        except (InvalidOption, InvalidWeights) as error:  # another tokenizer, or a damaged file
            self.left_out["phrases"] = str(error)

    def _add_shipped(self, target: Target) -> None:
        """Add the best of the package's heads, if a controller can decide when to ask it."""
        if self.passes is None or not target.heads:
            return
        if not isinstance(target.model.kernels, TappedKernels):
            name = target.model.kernels.name
            reason = f"the {name} kernels hand out no hidden states"
            self.left_out |= {path.name: reason for path in target.heads}
            return
        is_tried = target.model.kernels.begins_early
        best, left_out = best_head(
            target.heads, target.model.config, self.passes, is_tried=is_tried
        )
        self.left_out |= left_out
        if best is not None:
            kind, path = best.folder.config.kind, best.folder.path
            try:
                self._add(SpeculativeConfig(method=kind, model=str(path)), target)
                self.depths[kind] = METHODS[kind].default_depth
                self.shipped = best
            except InvalidOption as error:  # the same weights under another tokenizer
                self.left_out[path.name] = str(error)

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers whose hidden states the heads read, ascending."""
        heads = [d for d in self.drafters.values() if isinstance(d, TappedDrafter)]
        return tuple(sorted({layer for head in heads for layer in head.layers}))

    def compile_heads(self, trial: Trial, depth: int) -> None:
        """Compile all that rounds with heads need, by walking through such rounds."""
        for name, drafter in self.drafters.items():
            if isinstance(drafter, TappedDrafter):
                trial.walk({name: drafter}, self.depths.get(name, depth))

    def timed_heads(self, target: LlamaModel) -> dict[str, DraftCost]:
        """Time the answers of trained heads, which need their caches for that. The package's head
        is left out if, by these times, it does not pay."""
        timed = {
            name: timed_head(drafter, target, METHODS[name].default_depth)
            for name, drafter in self.drafters.items()
            if isinstance(drafter, TappedDrafter)
        }
        if self.shipped is not None and self.passes is not None:
            folder, kind = self.shipped.folder, self.shipped.folder.config.kind
            args = folder, self.shipped.card, target.config, self.passes
            self.shipped = promise = promised(*args, timed.get(kind))
            if not promise.pays and not target.kernels.begins_early:
                timed.pop(kind, None)
                self._leave_out(promise, promise.reason)
        return timed

    def try_heads(self, costs: Costs, trial: Trial, depth: int) -> None:
        """Time whole rounds with each head, since the times of a round's parts do not add up to a
        round, least of all where rounds begin early. The package's head is left out if it does not
        pay, or cannot be tried."""
        is_early = trial.core.model.kernels.begins_early
        heads = {n: d for n, d in self.drafters.items() if isinstance(d, TappedDrafter)}
        for name, drafter in heads.items():
            deep, promise = self.depths.get(name, depth), self.shipped
            if promise is not None and not is_early:
                deep = promise.depth
            plain, guessing = trial.seconds(), trial.seconds({name: drafter}, deep)
            if plain is None or guessing is None:
                if promise is not None:
                    self._leave_out(promise, "it failed, or had no room to be tried")
                continue
            promise = promise and promise.timed(plain, guessing, deep, is_early=is_early)
            if promise is not None and not promise.pays:
                self._leave_out(promise, promise.reason)
            elif is_early:
                costs.expect_whole(name, guessing, plain)
            else:
                costs.expect_excess(name, deep, guessing - plain)

    def _leave_out(self, promise: Promise, reason: str) -> None:
        self.left_out[promise.folder.path.name] = reason
        for known in (self.drafters, self.cards, self.depths):
            known.pop(promise.folder.config.kind, None)
