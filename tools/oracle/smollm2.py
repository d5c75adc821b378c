"""Golden answers: the tokens of the transformers library with SmolLM2's GGUF file.

    python tools/oracle/smollm2.py write tests/golden/smollm2.json     ask transformers
    python tools/oracle/smollm2.py compare tests/golden/smollm2.json   run Forerun on all prompts

Prompts go through the model's chat template; answers are greedy, 64 tokens. `margin` is the
smallest gap between the two best logits along the answer: how near it came to a tie.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from forerun.kernels import Plan, ReferenceKernels
from forerun.models.download.pull import pull
from forerun.models.llama import LlamaModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.types import Span, Tree

NUM_TOKENS = 64
PROMPTS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain why the sky is blue in two sentences.",
    "List five fruits.",
    "Translate to French: Good morning, my friend.",
    "Write a Python function that adds two numbers.",
    "Repeat this sentence: The quick brown fox jumps over the lazy dog.",
    "Who wrote Romeo and Juliet?",
    "Give me a short recipe for pancakes.",
    "What is 12 plus 30?",
)


def ask_transformers(path: Path, prompts: list[list[int]]) -> list[dict[str, Any]]:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    return [greedy(torch, model, prompt) for prompt in prompts]


def greedy(torch: Any, model: Any, prompt: list[int]) -> dict[str, Any]:
    """Generate 64 tokens by argmax; an EOS is a token like any other here."""
    answer: list[int] = []
    margin = float("inf")
    fed, cache = torch.tensor([prompt]), None
    with torch.no_grad():
        for _ in range(NUM_TOKENS):
            result = model(fed, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            best = result.logits[0, -1].topk(2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            answer.append(int(best.indices[0]))
            fed = torch.tensor([[answer[-1]]])
    return {"prompt": prompt, "answer": answer, "margin": round(margin, 5)}


def first_difference(model: LlamaModel, case: dict[str, Any]) -> int | None:
    """Return where Forerun's greedy choice first differs from the golden answer, if it does.

    One pass over prompt and answer suffices: as long as all choices before token i agree, its
    context is that of decoding.
    """
    tokens = (*case["prompt"], *case["answer"][:-1])
    first = len(case["prompt"]) - 1
    span = Span(0, tokens, Tree.chain(len(tokens)), tuple(range(first, len(tokens))))
    cache = model.new_cache(1, len(tokens))
    table = cache.new_table()
    table.reserve(len(tokens))
    chosen = model.forward(Plan.build([(span, table)]), cache).argmax(axis=-1)
    differs = np.flatnonzero(chosen != np.array(case["answer"]))
    return int(differs[0]) if len(differs) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    path = pull("smollm2-135m")
    checkpoint = open_checkpoint(path)
    tokenizer = load_tokenizer(checkpoint)
    if args.action == "write":
        prompts = [tokenizer.encode_chat([{"role": "user", "content": text}]) for text in PROMPTS]
        cases = ask_transformers(path, prompts)
        args.file.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    model = LlamaModel.load(checkpoint, ReferenceKernels())
    cases = json.loads(args.file.read_text())
    differences = [first_difference(model, case) for case in cases]
    for case, difference in zip(cases, differences, strict=True):
        text = tokenizer.decode(case["answer"])[:60]
        verdict = "same" if difference is None else f"differs at {difference}"
        print(f"{verdict:14} margin {case['margin']:.4f}  {text!r}")
    if any(difference is not None for difference in differences):
        raise SystemExit("Forerun's greedy text is not what transformers gives.")


if __name__ == "__main__":
    main()
