"""The interface between models and hardware.

Arrays, weights, stores and batches are opaque outside this package: a model passes them from call
to call and never looks inside. A pass is

    batch = begin(plan, …)                        integers go to the device, once
    run(body, batch, store)                       or draw(…), for tokens; body(batch, store) is
    x = embed(table, batch)                       [T, E]
    per layer:
      x, h = add_norm(x, delta, norm)             residual, then RMS norm
      q = rope_write(linear(h, qkv), ...)         rotate; k and v go to the store
      delta = linear(attend(q, ...), out)
      x, h = add_norm(x, delta, norm)
      delta = linear(silu_mul(linear(h, gate_up)), down)
    x, h = add_norm(select(x), select(delta), norm)   only the wanted rows go on
    logits(h, head)                               numpy [R, V]

**A token's results do not depend on what else is in the pass**, bit for bit: not on the number of
tokens, their order, the chunking of a prompt, the tree around the token, or the page layout. The
contract suite (`tests/contracts/test_kernels.py`) checks this for every kernel set.
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
Batch = Any  # a plan in the kernel set's own form
Body = Callable[[Batch, Store], npt.NDArray[np.float32]]  # from the embedding to the logits


Given = Sequence[FloatArray] | Callable[[], Sequence[FloatArray]]


class StoredTensor(Protocol):
    """One weight in the format of its file, such as `models.weights.checkpoint.Tensor`."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def format(self) -> str: ...
    @property
    def data(self) -> npt.NDArray[np.uint8]: ...

    def floats(self, first: int, last: int) -> npt.NDArray[np.float32]:
        """Return rows `first` … `last` - 1, expanded to float32."""


class WeightSource(Protocol):
    """Where weights are loaded from, such as `models.weights.checkpoint.Checkpoint`."""

    def tensor(self, name: str) -> StoredTensor: ...

    def float32(self, name: str) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class AttentionShape:
    """A model's heads. Query head h reads key/value head h // (num_heads // num_kv_heads)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None  # a token attends to at most so many keys, its own included

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
    """A kernel set: every operation that models need, on one kind of hardware."""

    @property
    def name(self) -> str: ...

    @property
    def begins_plain(self) -> bool:
        """Whether a plain pass whose plan has `next_slots` is followed at once by the next pass,
        while the host processes the drawn tokens."""

    @property
    def head_start(self) -> float:
        """Seconds of the last pass's work that were done before the engine asked for the pass."""

    @property
    def begins_early(self) -> bool:
        """Whether passes, drafters' too, may begin before the previous one has ended. If so, timing
        the parts of a round one by one does not tell what they cost."""

    @property
    def begins_rounds(self) -> bool:
        """Whether a pass with guesses may begin early, too: the latest guesses were made by passes
        of this kernel set."""

    def loading(self, num_tensors: int) -> AbstractContextManager[None]:
        """Wrap the loading of one model, to report its progress and its outcome."""

    def load_vector(self, source: WeightSource, name: str) -> Weight: ...

    def load_matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Weight:
        """Load the named matrices [out, in], stacked along `out`, with one bias each or none."""

    def new_store(self, shape: AttentionShape, num_layers: int, num_slots: int) -> Store:
        """Allocate the KV rows of all layers; raise `MemoryError` if they do not fit."""

    def row_bytes(self, shape: AttentionShape, num_layers: int) -> int:
        """Return the bytes of one slot of such a store: a key and a value in every layer."""

    def free_bytes(self) -> int | None:
        """Return the bytes that new stores may take; None if only the host's memory limits them."""

    def move_rows(self, store: Store, sources: IntArray, targets: IntArray) -> None:
        """Copy K and V of all layers from slot to slot, as if all were read before any write."""

    def begin(self, plan: Plan, shape: AttentionShape, inv_freq: FloatArray) -> Batch:
        """Prepare a pass; `inv_freq` [head_dim / 2] are the rotary frequencies, in float64."""

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        """Return exactly what `sampling.gumbel_argmax` returns, by a faster way if there is one."""

    def weight_sum(self, logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        """Return bounds of the same sum as `sampling.weight_sum`; they may be wider or closer."""

    def run(self, body: Body, batch: Batch, store: Store) -> npt.NDArray[np.float32]:
        """Run body(batch, store), a pass from `embed` to `logits`.

        A body depends on its arguments alone, so a kernel set may record its operations and replay
        them for the next batch with the same number of tokens.
        """

    def draw(
        self, body: Body, batch: Batch, store: Store, draws: Sequence[CoupledDraws | None]
    ) -> Scores:
        """Run the pass and draw the tokens that `draws` (one for each row of the plan) describe.

        A kernel set may draw on the device, exactly as `sampling` would, and leave the logits
        there; or return logits and no tokens. Rows without draws are returned as logits. Rows
        after a guess that is not accepted may be left out.
        """

    def embed(self, table: Weight, batch: Batch) -> Array:
        """[T, E]"""

    def add_norm(self, x: Array, delta: Array | None, norm: Norm) -> tuple[Array, Array]:
        """Return (x + delta, norm(x + delta)); `x` may be overwritten, so do not use it again."""

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
        """Apply `q_norm` and `k_norm` per head, rotate q and k (halves paired), store k and v.

        `qkv` is [T, q_len + 2·kv_len]; returns q [T, q_len].
        """

    def attend(self, q: Array, batch: Batch, store: Store, layer: int) -> Array:
        """softmax(q·k / sqrt(head_dim))·v over each token's keys in logical order: [T, q_len]"""

    def silu_mul(self, gate_up: Array) -> Array:
        """silu(gate) · up: [T, 2F] -> [T, F]"""

    def select(self, x: Array, batch: Batch) -> Array:
        """The wanted rows: [T, …] -> [R, …]"""

    def logits(self, x: Array, head: Weight) -> npt.NDArray[np.float32]:
        """x · headᵀ, copied to the host: [R, E] -> [R, V]"""


@runtime_checkable
class CompiledKernels(Protocol):
    """Kernels that are compiled on first use, which takes long."""

    @property
    def compiles(self) -> bool:
        """False if the kernels are interpreted instead."""

    def compiling(self) -> AbstractContextManager[None]:
        """Collect the kernels that passes need, and compile them concurrently on exit.

        Passes inside run nothing, and their results are meaningless.
        """


@dataclass(frozen=True)
class ChainNoise:
    """How a pass guesses: argmax(logits / temperature + noise), or argmax(logits) at 0.

    Guess number i is for the token at `position` + i, with the noise of `sampling.Noise` there.
    """

    temperature: float = 0.0
    key: int = 0
    position: int = 0


@runtime_checkable
class TappedKernels(Kernels, Protocol):
    """A kernel set whose passes return and accept hidden states, as trained heads need them.

    A body may call `tap` any number of times; after `run`, `taps` returns the tapped values. A
    body that taps and one that does not must be unequal; both give logits with the same bits.
    """

    def begin(
        self,
        plan: Plan,
        shape: AttentionShape,
        inv_freq: FloatArray,
        given: Sequence[FloatArray] = (),
    ) -> Batch:
        """As in `Kernels`; `given` are activations [T, width] that the pass starts from."""

    def given(self, batch: Batch, idx: int) -> Array:
        """Array number `idx` of those given to `begin`: [T, width]"""

    def concat(self, parts: Sequence[Array]) -> Array:
        """Join columns: [T, a], [T, b], … -> [T, a + b + …]"""

    def tap(self, x: Array, batch: Batch) -> None:
        """Let the pass return the present values of `x`, even if `x` is overwritten later."""

    def taps(self, batch: Batch) -> Sequence[npt.NDArray[np.float32]]:
        """Return the values that the last `run` over this batch tapped, in order, on the host.

        Rows of padding may follow a tap's own rows. The values stay readable until the second such
        pass after this one.
        """


@runtime_checkable
class ChainKernels(TappedKernels, Protocol):
    """A kernel set on which one pass over one request guesses a whole chain of tokens."""

    def begin(
        self,
        plan: Plan,
        shape: AttentionShape,
        inv_freq: FloatArray,
        given: Given = (),
        noise: ChainNoise | None = None,
    ) -> Batch:
        """As in `TappedKernels`. In the plan, tokens that the pass will guess may have any id, such
        as 0. `given` may be a callable; it is not called if the pass has begun early."""

    def load_array(self, array: IntArray | FloatArray) -> Weight:
        """Load ids, or a table whose rows are read one at a time, without packing."""

    def computed(self, x: Array) -> Array:
        """Return x as computed values, so that several uses do not compute it again."""

    def num_known(self, batch: Batch) -> int:
        """Return how many tokens of a chain's batch come before its guesses, padding included.

        The last known token and all tokens after it are wanted.
        """

    def part(self, batch: Batch, first: int, last: int) -> Batch:
        """Tokens `first` … `last` - 1 of a batch, with the wanted ones among them."""

    def new_picks(self, batch: Batch, num: int) -> Array:
        """Room for `num` guesses [num, 3]: id, probability in softmax(logits), index in `ids`."""

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
        """Write guess number `place` to `picks`, from one row of logits [R, n] of the tokens `ids`,
        with `delta` [1, n] added. If `token` is given, the guess becomes that token of the batch.
        """

    def gated_row(self, table: Weight, gates: Array, row: int, picks: Array, place: int) -> Array:
        """(1 + gates[row]) ∘ the row of a table [n, width] for guess number `place`: [1, width]"""

    def finish(self, x: Array) -> npt.NDArray[np.float32]:
        """End a body that has no logits: return the wanted rows on the host."""
