"""A few passes for compute-sanitizer, which finds reads and writes outside of memory:

    compute-sanitizer --tool memcheck python -m tests.gpu.sanitized

It is slow, so the model is small; kernels are launched one by one, since graphs hide their names.
"""

from __future__ import annotations

from forerun.kernels.cuda import CudaKernels
from forerun.models.llama import LlamaModel
from tests.models_llama.runs import chain_logits
from tests.models_llama.tiny import TinyCheckpoint, tiny_config

NUM_TOKENS = (1, 13, 40)
# Hidden size, inner size, head_dim, dtype and quantization. Sums of more than 4,096 columns and
# heads of 128 have kernels of their own.
FORMS = (
    (256, 512, 64, "bfloat16", None),
    (256, 512, 64, "bfloat16", "int8"),
    (1024, 4608, 128, "bfloat16", None),
    (1024, 4608, 128, "bfloat16", "int8"),
    (1060, 1092, 64, "float32", None),
)


def main() -> None:
    for hidden, inner, head_dim, dtype, quantization in FORMS:
        config = tiny_config(
            num_layers=2, num_heads=4, num_kv_heads=2, head_dim=head_dim, hidden_size=hidden,
            intermediate_size=inner,
        )  # fmt: skip
        kernels = CudaKernels(dtype, quantization=quantization, graphs=False)
        model = LlamaModel.load(TinyCheckpoint(config), kernels)
        for num_tokens in NUM_TOKENS:
            chain_logits(model, tuple(range(num_tokens)))
        print(f"{hidden} × {inner}, {quantization or dtype}: {NUM_TOKENS} tokens")


if __name__ == "__main__":
    main()
