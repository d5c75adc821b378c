"""The one interface between models and hardware.

Arrays, weights, stores and batches are opaque above this room: a model passes them from call to
call and never looks inside. A pass is

    batch = begin(plan, rope)                     integers go to the device, once
    run(body, batch, store)                       or draw(…), for tokens; where body is
    x = embed(table, batch)                       [T, E]
    per layer:
      x, h = add_norm(x, delta, norm)             residual, then RMS norm
      q = rope_write(linear(h, qkv), ...)         rotate; k and v go to the store
      delta = linear(attend(q, ...), out)
      x, h = add_norm(x, delta, norm)
      delta = linear(silu_mul(linear(h, gate_up)), down)
    x, h = add_norm(select(x), select(delta), norm)   only the wanted rows go on
    logits(h, head)                               numpy [R, V]

**What a token gets does not depend on what else is in the pass**, bit for bit: not on the number
of tokens, their order, the chunking of a prompt, the tree around it, or the page layout. The
contract suite (`tests/contracts/test_kernels.py`) holds every kernel set to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from forerun.kernels.plan import Plan
from forerun.kernels.scores import Scores
from forerun.sampling import CoupledDraws, Logits, Noise
from forerun.types import FloatArray, IntArray

Array = Any  # activations: [T, …], or [R, …] after select
Weight = Any  # a vector, or a matrix of one or more stacked parts
Store = Any  # the K and V rows of all layers
Batch = Any  # a plan, as the kernel set likes it
Body = Callable[[Batch, Store], npt.NDArray[np.float32]]  # from the embedding to the logits


Given = Sequence[FloatArray] | Callable[[], Sequence[FloatArray]]


class StoredTensor(Protocol):
    """One weight as its file has it; `models.weights.checkpoint.Tensor` is one."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def format(self) -> str: ...
    @property
    def data(self) -> npt.NDArray[np.uint8]: ...

    def floats(self, first: int, last: int) -> npt.NDArray[np.float32]:
        """Rows `first` … `last` - 1, expanded."""


class WeightSource(Protocol):
    """Where weights come from; `models.weights.checkpoint.Checkpoint` is one."""

    def tensor(self, name: str) -> StoredTensor: ...

    def float32(self, name: str) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class AttentionShape:
    """The heads of a model. Query head h reads key/value head h // (num_heads // num_kv_heads)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None  # a token sees this many keys at most, itself included

    @property
    def q_len(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_len(self) -> int:
        return self.num_kv_heads * self.head_dim


@dataclass(frozen=True)
class Norm:
    """An RMS norm: x · weight / sqrt(mean(x²) + eps)."""

    weight: Weight
    eps: float


class Kernels(Protocol):
    """A kernel set: everything that a model asks of the hardware."""

    @property
    def name(self) -> str: ...

    @property
    def begins_plain(self) -> bool:
        """Whether behind a plain pass whose plan has `next_slots` the next one is begun at once,
        while the host works on what was drawn."""

    @property
    def head_start(self) -> float:
        """Seconds of its work that were done when the last pass was asked for."""

    @property
    def begins_early(self) -> bool:
        """Whether passes, drafters' too, are begun before the last ones are over: what the parts of
        a round take one after the other says nothing."""

    @property
    def begins_rounds(self) -> bool:
        """Whether that may be so for a pass with guesses, too: the latest were made here."""

    def loading(self, num_tensors: int) -> AbstractContextManager[None]:
        """Around the loading of one model, to tell how far it is and what became of it."""

    def load_vector(self, source: WeightSource, name: str) -> Weight: ...

    def load_matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Weight:
        """The named matrices [out, in] stacked along `out`, with one bias for each or none."""

    def new_store(self, shape: AttentionShape, num_layers: int, num_slots: int) -> Store:
        """Room for the rows of all layers; `MemoryError` where there is none."""

    def row_bytes(self, shape: AttentionShape, num_layers: int) -> int:
        """What one slot of such a store takes: a key and a value in every layer."""

    def free_bytes(self) -> int | None:
        """What new stores may take together; None where a machine's memory is the only limit."""

    def move_rows(self, store: Store, sources: IntArray, targets: IntArray) -> None:
        """Copy K and V of all layers from slot to slot, as if all were read before any write."""

    def begin(self, plan: Plan, shape: AttentionShape, inv_freq: FloatArray) -> Batch:
        """Prepare a pass; `inv_freq` [head_dim / 2] are the rotary frequencies, in float64."""

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        """`sampling.gumbel_argmax`, bit for bit, as fast as the hardware likes."""

    def weight_sum(self, logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        """Bounds as those of `sampling.weight_sum`, as close as the hardware likes."""

    def run(self, body: Body, batch: Batch, store: Store) -> npt.NDArray[np.float32]:
        """body(batch, store): a pass, from `embed` to `logits`.

        A body depends on its arguments alone, so a kernel set may keep what it did and replay it
        for the next batch of as many tokens.
        """

    def draw(
        self, body: Body, batch: Batch, store: Store, draws: Sequence[CoupledDraws | None]
    ) -> Scores:
        """`run`, and the tokens that `draws` (one for each row of the plan) describe.

        A kernel set may draw them where the logits are, exactly as `sampling` would, and leave
        the logits there; or return logits and no tokens. Rows without draws come as logits. Rows
        that no accepted guess leads to may be left out.
        """

    def embed(self, table: Weight, batch: Batch) -> Array:
        """[T, E]"""

    def add_norm(self, x: Array, delta: Array | None, norm: Norm) -> tuple[Array, Array]:
        """(x + delta, norm(x + delta)); `x` is given up and may be written to."""

    def linear(self, x: Array, matrix: Weight) -> Array:
        """x · matrixᵀ + bias: [T, in] -> [T, out]"""

    def rope_write(
        self,
        qkv: Array,
        batch: Batch,
        store: Store,
        layer: int,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> Array:
        """Normalise q and k per head where asked, rotate them (halves paired), store k and v.

        `qkv` is [T, q_len + 2·kv_len]; returns q [T, q_len].
        """

    def attend(self, q: Array, batch: Batch, store: Store, layer: int) -> Array:
        """softmax(q·k / sqrt(head_dim))·v over each token's keys in logical order: [T, q_len]"""

    def silu_mul(self, gate_up: Array) -> Array:
        """silu(gate) · up: [T, 2F] -> [T, F]"""

    def select(self, x: Array, batch: Batch) -> Array:
        """The wanted rows: [T, …] -> [R, …]"""

    def logits(self, x: Array, head: Weight) -> npt.NDArray[np.float32]:
        """x · headᵀ, back on the host: [R, E] -> [R, V]"""


@runtime_checkable
class CompiledKernels(Protocol):
    """Those that are compiled when they are first used, which takes long."""

    @property
    def compiles(self) -> bool:
        """Not where they are interpreted."""

    def compiling(self) -> AbstractContextManager[None]:
        """Passes inside run nothing, and what comes out of them means nothing; but what they need
        is compiled when it is over, side by side."""


@dataclass(frozen=True)
class ChainNoise:
    """How a pass guesses: argmax(logits / temperature + noise), or argmax(logits) at 0.

    Guess number i is for the token at `position` + i; its noise is that of `sampling.Noise`.
    """

    temperature: float = 0.0
    key: int = 0
    position: int = 0


@runtime_checkable
class TappedKernels(Kernels, Protocol):
    """A kernel set whose passes hand out hidden states, and take them in: trained heads run here.

    A body calls `tap` as often as it likes; once `run` is over, `taps` has what was handed out. A
    body that taps is another body than one that does not, with the same bits of logits.
    """

    def begin(
        self,
        plan: Plan,
        shape: AttentionShape,
        inv_freq: FloatArray,
        given: Sequence[FloatArray] = (),
    ) -> Batch:
        """As above; `given` are activations [T, width] for the pass to start from."""

    def given(self, batch: Batch, idx: int) -> Array:
        """What `begin` was given: [T, width]"""

    def concat(self, parts: Sequence[Array]) -> Array:
        """Side by side: [T, a], [T, b], … -> [T, a + b + …]"""

    def tap(self, x: Array, batch: Batch) -> None:
        """Hand out `x` as it is now, whatever is written to it later."""

    def taps(self, batch: Batch) -> Sequence[npt.NDArray[np.float32]]:
        """What the last `run` over this batch tapped, on the host, in order; there may be more rows
        behind those that were there. They may be read late, until the second such pass after it."""


@runtime_checkable
class ChainKernels(TappedKernels, Protocol):
    """A kernel set on which one pass over one request guesses a whole chain of tokens by itself."""

    def begin(
        self,
        plan: Plan,
        shape: AttentionShape,
        inv_freq: FloatArray,
        given: Given = (),
        noise: ChainNoise | None = None,
    ) -> Batch:
        """As above; tokens that the pass will guess may stand as 0 in the plan, and what is given
        may be made when it is needed: not where the pass was begun early."""

    def load_array(self, array: IntArray | FloatArray) -> Weight:
        """Ids, or a table of single rows, as they are."""

    def computed(self, x: Array) -> Array:
        """x, computed once for all who will ask for it."""

    def num_known(self, batch: Batch) -> int:
        """Tokens of a chain's batch before those that it guesses, as many as there is room for:
        all from the last that is known on are wanted."""

    def part(self, batch: Batch, first: int, last: int) -> Batch:
        """Tokens `first` … `last` - 1 of a batch, with those of them that are wanted."""

    def new_picks(self, batch: Batch, num: int) -> Array:
        """Room for `num` guesses [num, 3]: id, share of softmax(logits), which of the `ids`."""

    def pick(
        self,
        logits: Array,
        ids: Weight,
        batch: Batch,
        picks: Array,
        place: int,
        *,
        row: int = 0,
        delta: Array | None = None,
        token: int | None = None,
    ) -> None:
        """Guess number `place`, from one row of logits [R, n] of the tokens `ids`, with `delta`
        [1, n] added. It becomes token number `token` of the batch, if that is given."""

    def gated_row(self, table: Weight, gates: Array, row: int, picks: Array, place: int) -> Array:
        """(1 + gates[row]) ∘ the row of a table [n, width] for guess number `place`: [1, width]"""

    def finish(self, x: Array) -> npt.NDArray[np.float32]:
        """The end of a body without logits: rows, as many as are wanted, back on the host."""
