"""The CUDA kernel set: Triton kernels, with torch as their memory.

Products are in bfloat16 or float16 with float32 sums, or in float32; weights may be int8 with
scales. The residual stream is float32, and the cache has the products' dtype. Operations are fused
where the model's order of calls allows it: a product (`values.Product`) is not computed before the
operation that follows it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from triton.errors import TritonError

from forerun.errors import DeviceFailed, ForerunError, UnsupportedModel, unknown_name
from forerun.kernels.base import AttentionShape, Body, ChainNoise, Norm, WeightSource
from forerun.kernels.base import Given as GivenRows
from forerun.kernels.cuda.asked_draws import Draws
from forerun.kernels.cuda.batch import CudaBatch, RopeTable
from forerun.kernels.cuda.compiling import compiled_ahead
from forerun.kernels.cuda.drawing import Drawing
from forerun.kernels.cuda.graphs import Graphs, Stopwatch
from forerun.kernels.cuda.heads.given import Given
from forerun.kernels.cuda.heads.operations import HeadOperations
from forerun.kernels.cuda.launches import Launches
from forerun.kernels.cuda.passes.body import launched
from forerun.kernels.cuda.passes.recording import GraphRecorder, NothingRecorded, Recorder
from forerun.kernels.cuda.products.tiles import SHARED_BYTES, whole_norms, whole_steps
from forerun.kernels.cuda.store import KVStore
from forerun.kernels.cuda.values import Normed, Product, Rows
from forerun.kernels.cuda.weights import Loader, Matrix
from forerun.kernels.plan import Plan
from forerun.kernels.scores import Scores
from forerun.sampling import Logits, Noise, gumbel_argmax, weight_sum
from forerun.types import FloatArray, IntArray

DTYPES: Final = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}
QUANTIZATIONS: Final = ("int8",)
_READ_WORDS: Final = 1 << 30  # 4 GiB, many times what the caches hold
_LEAST_FOR_PASSES: Final = 1 << 30  # bytes for graphs, logits and intermediate results
_SHARE_FOR_PASSES: Final = 0.05
_OVERLAPPING: Final = (9, 0)  # first compute capability with programmatic dependent launch

F32 = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]  # what is done, how many so far, of how many


class CudaKernels(HeadOperations):
    """The CUDA kernel set.

    `graphs=False` launches the kernels of every pass one by one, for tests and debugging. Passes
    are recorded by `recorder`, by default as CUDA graphs. Without `early_rounds` a round with
    guesses begins only when the engine asks for it (ADR 020).
    """

    name: Final = "cuda"

    def __init__(
        self,
        dtype: str = "bfloat16",
        *,
        quantization: str | None = None,
        device: str = "cuda",
        graphs: bool = True,
        recorder: Recorder | None = None,
        early_rounds: bool = True,
        progress: Progress | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise unknown_name("dtype", dtype, DTYPES)
        if quantization not in (None, *QUANTIZATIONS):
            raise unknown_name("quantization", str(quantization), QUANTIZATIONS)
        self.dtype: Final = DTYPES[dtype]
        self.device = torch.device(device)
        is_gpu = self.device.type == "cuda"
        overlap = is_gpu and torch.cuda.get_device_capability(self.device) >= _OVERLAPPING
        self._launches = Launches(self.dtype, overlap, _shared_bytes(self.device))
        self._loader = Loader(self.dtype, self.device, packs=quantization is not None)
        self.drawing: Final = Drawing(self._launches.options, self.device)
        if recorder is None and graphs and is_gpu:
            recorder = GraphRecorder()
        self._early_rounds = early_rounds
        self._graphs = None if recorder is None else self._new_graphs(recorder)
        self._progress = progress
        self._num_loaded = self._num_tensors = 0
        self._ropes: dict[bytes, RopeTable] = {}

    def _new_graphs(self, recorder: Recorder) -> Graphs:
        launches, is_early = self._launches, self._early_rounds
        splits, kernels_of = launches.num_splits, launches.kernels_of
        return Graphs(splits, kernels_of, self.drawing, recorder, early_rounds=is_early)

    @property
    def compiles(self) -> bool:
        return bool(self.device.type == "cuda")

    @contextmanager
    def compiling(self) -> Iterator[None]:
        graphs = self._graphs
        try:
            if graphs is not None:
                self._graphs = self._new_graphs(NothingRecorded())
            with compiled_ahead(self.device):
                yield
        finally:
            self._graphs, self.drawing.last = graphs, None

    @property
    def begins_early(self) -> bool:
        return self._graphs is not None

    begins_plain = begins_early
    head_start: Final = 0.0  # without effect: whole rounds are timed here, not passes (ADR 022)

    @property
    def begins_rounds(self) -> bool:
        return self._graphs is not None and self._graphs.has_guessed

    @contextmanager
    def loading(self, num_tensors: int) -> Iterator[None]:
        self._num_loaded, self._num_tensors = 0, num_tensors
        yield
        self._num_tensors = 0

    def _count(self, num: int) -> None:
        if self._progress is not None and self._num_tensors:
            self._progress("sending weights to the GPU", self._num_loaded, self._num_tensors)
        self._num_loaded += num

    def load_vector(self, source: WeightSource, name: str) -> torch.Tensor:
        self._count(1)
        vector = self._loader.vector(source, [name])
        _require_whole(name, vector.numel(), whole_norms(vector.numel(), self.dtype.itemsize))
        return vector

    def load_matrix(
        self, source: WeightSource, names: Sequence[str], biases: Sequence[str] = ()
    ) -> Matrix:
        self._count(len(names) + len(biases))
        matrix = self._loader.matrix(source, names, biases)
        multiple = whole_steps(matrix.num_in, self.dtype.itemsize, matrix.group)
        _require_whole(names[0], matrix.num_in, multiple)
        return matrix

    def new_store(self, shape: AttentionShape, num_layers: int, num_slots: int) -> KVStore:
        return KVStore.new(shape, num_layers, num_slots, self.dtype, self.device)

    def row_bytes(self, shape: AttentionShape, num_layers: int) -> int:
        return int(2 * num_layers * shape.kv_len * self.dtype.itemsize)

    def free_bytes(self) -> int | None:
        """Return the bytes that stores may take; memory that torch reserves unused counts as free.

        A share is left for passes and their graphs.
        """
        if self.device.type != "cuda":
            return None
        if self._graphs is not None:
            self._graphs.forget()
        free, total = torch.cuda.mem_get_info(self.device)
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return max(0, int(free + unused - max(_LEAST_FOR_PASSES, total * _SHARE_FOR_PASSES)))

    def move_rows(self, store: KVStore, sources: IntArray, targets: IntArray) -> None:
        store.move_rows(sources, targets)

    def rows(self, array: npt.ArrayLike) -> Rows:
        """Copy an array [T, width] to the device, as rows that operations accept."""
        return Rows(torch.tensor(np.asarray(array, np.float32), device=self.device))

    def to_host(self, value: Rows | Normed | Product) -> F32:
        """Return the result of any operation as float32 on the host."""
        if isinstance(value, Product):
            value = Rows(self._launches.plain(value.x, value.matrix), value.chosen)
        if isinstance(value, Normed):
            mean = value.squares.sum(1, keepdim=True) / value.scaled.shape[1]
            value = Rows(value.scaled.float() * torch.rsqrt(mean + value.eps))
        data = value.data if value.chosen is None else value.data[value.chosen.long()]
        found: F32 = data.float().cpu().numpy()
        return found

    def begin(
        self,
        plan: Plan,
        shape: AttentionShape,
        inv_freq: FloatArray,
        given: GivenRows = (),
        noise: ChainNoise | None = None,
    ) -> CudaBatch:
        key = inv_freq.tobytes()
        rope = self._ropes.get(key)
        if rope is None:
            rope = self._ropes[key] = RopeTable(inv_freq)
        make = given if callable(given) else lambda: given
        hidden = Given(make, noise or ChainNoise(), noise is not None) if given else None
        return CudaBatch(plan, shape, rope, self.device, given=hidden)

    def gumbel_argmax(self, logits: Logits, noise: Noise, position: int) -> int:
        return gumbel_argmax(logits, noise, position)

    def weight_sum(self, logits: FloatArray, top: float, temperature: float) -> tuple[float, float]:
        return weight_sum(logits, top, temperature)

    def run(self, body: Body, batch: CudaBatch, store: KVStore) -> F32:
        found = self.draw(body, batch, store, ()).logits
        assert isinstance(found, np.ndarray)
        return found

    def draw(self, body: Body, batch: CudaBatch, store: KVStore, draws: Draws) -> Scores:
        try:
            if self._graphs is None:
                return launched(body, batch, store, self.drawing, draws)
            return self._graphs.run(body, batch, store, draws)
        except torch.OutOfMemoryError as error:
            raise DeviceFailed(
                "the GPU has no memory left for this pass; lower kv_cache_memory or max_num_seqs."
            ) from error
        except ForerunError:
            raise
        except (RuntimeError, TritonError) as error:  # Triton's launcher raises plain ones
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise DeviceFailed(
                f"the GPU failed in a pass ({reason}); start the process again."
            ) from error

    @contextmanager
    def timed(self, num_replays: int) -> Iterator[list[float]]:
        """Collect the seconds that each recorded pass takes on the device alone, for benchmarks."""
        assert self._graphs is not None, "only graphs are timed"
        stopwatch = self._graphs.stopwatch = Stopwatch(num_replays)
        try:
            yield stopwatch.seconds
        finally:
            self._graphs.stopwatch = None

    def kernel_times(self, work: Callable[[], object]) -> dict[str, dict[str, float]]:
        """Return how often each kernel runs in `work`, and its seconds in all, for benchmarks.

        Kernels overlap, and a kernel that waits for another counts as running.
        """
        torch.cuda.synchronize(self.device)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            work()
            torch.cuda.synchronize(self.device)
        return {
            event.key: {"count": event.count, "seconds": event.device_time_total / 1e6}
            for event in profile.key_averages()
            if event.device_time_total and not event.key.startswith("Memcpy")
        }

    def read_speed(self) -> float:
        """Measure the bytes per second at which a kernel reads memory and only adds it up."""
        data = torch.ones(_READ_WORDS, dtype=torch.int32, device=self.device)
        self._launches.read(data)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self._launches.read(data)
        end.record()
        end.synchronize()
        return float(data.nbytes / begin.elapsed_time(end) * 1e3)

    @property
    def weight_size(self) -> float:
        """Bytes per weight in a long row, including its share of a scale."""
        return self._loader.weight_size

    @property
    def device_name(self) -> str:
        return str(torch.cuda.get_device_name(self.device))

    def embed(self, table: Matrix, batch: CudaBatch) -> Rows:
        batch.num_embeddings = table.num_out
        batch.check(table.num_out)
        return Rows(self._launches.embed(table, batch.inputs(), self.drawing.drawn))

    def add_norm(
        self, x: Rows | Product, delta: Rows | Product | None, norm: Norm
    ) -> tuple[Rows, Normed]:
        if isinstance(x, Product):  # a head's residual stream begins with a product
            x = Rows(self._launches.plain(x.x, x.matrix))
        if x.num_rows == 0:  # a chunk inside a prompt, of which no logits are wanted
            return Rows(x.data[:0]), self._launches.new_normed(x.data[:0], norm)
        if isinstance(delta, Product) and isinstance(delta.x, Rows):
            product_in = delta.x.data.to(self.dtype)
            stream, normed = self._launches.residual(
                x.data, product_in, delta.matrix, delta.chosen, norm
            )
            return Rows(stream), normed
        if isinstance(delta, Product):
            delta = Rows(self._launches.plain(delta.x, delta.matrix), delta.chosen)
        stream, normed = self._launches.norm(x, None if delta is None else delta.data, norm)
        return Rows(stream), normed

    def linear(self, x: Rows | Normed, matrix: Matrix) -> Product:
        return Product(x, matrix)

    def rope_write(
        self,
        qkv: Rows | Product,
        batch: CudaBatch,
        store: KVStore,
        layer: int,
        q_norm: Norm | None = None,
        k_norm: Norm | None = None,
    ) -> Rows:
        if batch.recording is not None:
            batch.recording.at_layer(layer)
        inputs, rows = batch.inputs(), store.layer(layer)
        if isinstance(qkv, Product) and q_norm is None and k_norm is None:
            return Rows(self._launches.rotary(qkv.x, qkv.matrix, inputs, batch.shape, rows))
        if isinstance(qkv, Product):
            qkv = Rows(self._launches.plain(qkv.x, qkv.matrix))
        return Rows(self._launches.rope(qkv.data, inputs, batch.shape, rows, q_norm, k_norm))

    def attend(self, q: Rows, batch: CudaBatch, store: KVStore, layer: int) -> Rows:
        splits = batch.num_splits or self._launches.num_splits(batch.columns.most_keys)
        rows = store.layer(layer)
        return Rows(self._launches.attend(q.data, batch.inputs(), batch.shape, rows, splits))

    def silu_mul(self, gate_up: Rows | Product) -> Rows:
        if isinstance(gate_up, Product):
            return Rows(self._launches.gated(gate_up.x, gate_up.matrix))
        return Rows(self._launches.silu(gate_up.data))

    def select(self, x: Rows | Normed | Product, batch: CudaBatch) -> Rows | Normed | Product:
        wanted = batch.inputs().wanted
        if isinstance(x, Normed):
            return Normed(x.scaled[wanted], x.squares[wanted], x.eps)
        if isinstance(x, Product):
            return Product(x.x, x.matrix, wanted)
        return Rows(x.data, wanted)

    def logits(self, x: Normed, head: Matrix) -> Any:
        """Return rows on the device; `run` copies them to the host, outside any recording."""
        return Rows(self._launches.plain(x, head))


def _shared_bytes(device: torch.device) -> int:
    """Return a block's most shared memory; without a GPU, that of the GPU tiles are tuned for."""
    if device.type != "cuda":
        return SHARED_BYTES
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def _require_whole(name: str, num_columns: int, multiple: int) -> None:
    if num_columns % multiple:
        raise UnsupportedModel(
            f"{name} has {num_columns} columns, no multiple of {multiple}: on a GPU its bits would "
            "depend on the batch. Give --dtype float32 without quantization, or --device cpu."
        )
