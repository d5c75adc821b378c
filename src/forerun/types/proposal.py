"""Guessed tokens as a value: a tree, and how each guess was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

from forerun.errors import InvalidProposal
from forerun.types.arrays import FloatArray, check_probs
from forerun.types.tree import ROOT, Tree


class Draw(NamedTuple):
    """One guess as it was made: which node it landed on, and the law it was drawn from.

    `probs_q` is the distribution of *this* draw given everything drawn before it (without
    replacement: the renormalised rest). None means a point mass: the guess was not drawn but
    picked. That is always lawful, whatever picked it; a true q only accepts more often.

    `chance` is the drafter's own estimate of how likely a picked guess is accepted, given that the
    guesses before it are; None if it has none. It may depend on committed history only.
    """

    node: int
    probs_q: FloatArray | None = None  # [V]
    chance: float | None = None


@dataclass(frozen=True)
class Proposal:
    """A tree of guessed tokens and how they were drawn.

    Siblings carry distinct tokens: a token drawn twice is one node with two draws, so the
    target scores it once while its multiplicity, which the law needs, is kept. `draws` are in
    the order drawn, with parents before children.
    """

    tree: Tree
    tokens: tuple[int, ...]  # [N]
    draws: tuple[Draw, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.tree):
            raise InvalidProposal(
                f"{len(self.tokens)} tokens for a tree of {len(self.tree)} nodes; give one each."
            )
        self._check_siblings()
        self._check_draws()

    def without_laws(self) -> Proposal:
        """Return the same guesses without their q [V], which is not needed once they are judged."""
        if all(draw.probs_q is None for draw in self.draws):
            return self
        return replace(self, draws=tuple(draw._replace(probs_q=None) for draw in self.draws))

    def _check_siblings(self) -> None:
        if self.tree.is_chain and min(self.tokens, default=0) >= 0:
            return  # a chain has no siblings
        seen: set[tuple[int, int]] = set()
        for node, (parent, token) in enumerate(zip(self.tree.parents, self.tokens, strict=True)):
            if token < 0:
                raise InvalidProposal(f"node {node} guesses token {token}; ids start at 0.")
            if (parent, token) in seen:
                raise InvalidProposal(
                    f"token {token} stands twice below node {parent}; "
                    f"make it one node with two draws (ProposalBuilder merges them)."
                )
            seen.add((parent, token))

    def _check_draws(self) -> None:
        if self.draws is _picked(len(self.tree)):
            return
        nodes = [draw.node for draw in self.draws if draw.probs_q is None]
        if nodes == list(range(len(self.tree))) and len(nodes) == len(self.draws):
            return  # picked one after the other
        undrawn = set(range(len(self.tree)))
        for idx, draw in enumerate(self.draws):
            if not 0 <= draw.node < len(self.tree):
                raise InvalidProposal(f"draw {idx} names node {draw.node}, which does not exist.")
            undrawn.discard(draw.node)
            if draw.probs_q is not None:
                self._check_law(idx, self.tokens[draw.node], draw.probs_q)
        if undrawn:
            raise InvalidProposal(f"nodes {sorted(undrawn)} were never drawn; give each a draw.")

    @staticmethod
    def _check_law(idx: int, token: int, probs_q: FloatArray) -> None:
        check_probs(probs_q, name=f"q of draw {idx}")
        if token >= len(probs_q) or not probs_q[token] > 0:
            raise InvalidProposal(
                f"draw {idx} is token {token}, to which its own q gives probability 0; "
                f"record the law the token was really drawn from."
            )

    @staticmethod
    @cache
    def empty() -> Proposal:
        return Proposal(Tree.chain(0), (), ())

    @classmethod
    def chain(
        cls, tokens: Sequence[int], probs_q: Sequence[FloatArray | None] | None = None
    ) -> Proposal:
        draws = _picked(len(tokens))
        if probs_q is not None:
            if len(probs_q) != len(tokens):
                raise InvalidProposal(
                    f"{len(probs_q)} laws for {len(tokens)} tokens; give one each."
                )
            draws = tuple(Draw(node, law) for node, law in enumerate(probs_q))
        return cls(Tree.chain(len(tokens)), tuple(tokens), draws)

    @classmethod
    def picked(cls, tokens: Sequence[int], chances: Sequence[float]) -> Proposal:
        """A chain of picked guesses; `chances`: how likely each is accepted if those before are."""
        draws = tuple([Draw(node, None, chance) for node, chance in enumerate(chances)])
        return cls(Tree.chain(len(tokens)), tuple(tokens), draws)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def depth(self) -> int:
        return self.tree.depth

    def pruned(self, depth: int, num_branches: int) -> Proposal:
        """Keep the first `num_branches` branches, down to `depth`.

        Only for picked guesses: dropping a drawn guess would change the law.
        """
        if depth >= self.depth and num_branches >= len(self.tree.children(ROOT)):
            return self
        assert all(draw.probs_q is None for draw in self.draws), "a drawn guess is never dropped"
        if self.depth == len(self):
            kept_len = depth if num_branches else 0
            draws = tuple(draw for draw in self.draws if draw.node < kept_len)
            return Proposal(Tree.chain(kept_len), self.tokens[:kept_len], draws)
        roots = self.tree.children(ROOT)[:num_branches]
        builder, kept = ProposalBuilder(), {ROOT: ROOT}
        for node, (parent, token) in enumerate(zip(self.tree.parents, self.tokens, strict=True)):
            is_root_kept = parent != ROOT or node in roots
            if parent in kept and is_root_kept and self.tree.depths[node] <= depth:
                kept[node] = builder.add(kept[parent], token)
        return builder.build()

    @property
    def chances(self) -> list[float]:
        """The drafter's own estimate for each guess of its first branch; [] if it gives none."""
        chances = {draw.node: draw.chance for draw in self.draws if draw.chance is not None}
        if not chances or len(chances) < len(self):
            return []
        if self.tree.is_chain:
            return list(chances.values())
        return [chances[node] for node in self.tree.path_to(self.tree.deepest(0))]

    def path_tokens(self, node: int) -> tuple[int, ...]:
        """The guesses from the root down to `node`, which follow the committed tokens there."""
        if self.tree.is_chain:
            return self.tokens[: node + 1]
        return tuple(self.tokens[n] for n in self.tree.path_to(node))

    def draws_below(self, node: int) -> tuple[tuple[int, Draw], ...]:
        """(index, draw) of the draws below `node`, in the order drawn."""
        return self._draws_by_parent.get(node, ())

    @cached_property
    def _draws_by_parent(self) -> dict[int, tuple[tuple[int, Draw], ...]]:
        grouped: dict[int, list[tuple[int, Draw]]] = {}
        for idx, draw in enumerate(self.draws):
            grouped.setdefault(self.tree.parents[draw.node], []).append((idx, draw))
        return {parent: tuple(draws) for parent, draws in grouped.items()}

    def child_with_token(self, node: int, token: int) -> int | None:
        if self.tree.is_chain:
            child = node + 1
            return child if self.tokens[child : child + 1] == (token,) else None
        return self._child_by_token.get((node, token))

    @cached_property
    def _child_by_token(self) -> dict[tuple[int, int], int]:
        nodes = enumerate(zip(self.tree.parents, self.tokens, strict=True))
        return {key: node for node, key in nodes}


@lru_cache(maxsize=64)
def _picked(num: int) -> tuple[Draw, ...]:
    """The draws of a chain of `num` picked guesses without chances."""
    return tuple(map(Draw, range(num)))


@dataclass
class ProposalBuilder:
    """Grows a proposal draw by draw, merging a repeated token into one node."""

    _parents: list[int] = field(default_factory=list)
    _tokens: list[int] = field(default_factory=list)
    _draws: list[Draw] = field(default_factory=list)
    _nodes: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(
        self,
        parent: int,
        token: int,
        probs_q: FloatArray | None = None,
        chance: float | None = None,
    ) -> int:
        """Record a draw below `parent`; returns the node it landed on."""
        node = self._nodes.setdefault((parent, token), len(self._tokens))
        if node == len(self._tokens):
            self._parents.append(parent)
            self._tokens.append(token)
        self._draws.append(Draw(node, probs_q, chance))
        return node

    def __len__(self) -> int:
        return len(self._tokens)

    def build(self) -> Proposal:
        if not self._tokens:
            return Proposal.empty()
        tree = Tree.chain(len(self._parents))
        if tree.parents != (parents := tuple(self._parents)):
            tree = Tree(parents)
        return Proposal(tree, tuple(self._tokens), tuple(self._draws))
