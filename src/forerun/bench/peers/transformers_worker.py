"""The peer transformers: plain decoding, and its prompt lookup."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from worker import Answer, Handler, serve  # type: ignore[import-not-found]

MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "prompt_lookup:3": {"prompt_lookup_num_tokens": 3},
    "prompt_lookup:10": {"prompt_lookup_num_tokens": 10},
}


class Arrivals:
    """A streamer that notes the time whenever tokens come; the prompt comes first."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._has_prompt = False
        self.times: list[tuple[float, int]] = []

    def put(self, value: Any) -> None:
        if self._has_prompt:
            self.times.append((time.perf_counter() - self._began, int(value.numel())))
        self._has_prompt = True

    def end(self) -> None:
        """Do nothing; the protocol requires it."""


def start(setup: dict[str, Any]) -> tuple[Answer, Handler]:
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    torch.set_num_threads(setup["threads"])
    on_gpu = setup["device"] == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    model = _load(transformers, dtype, setup["model"]).to(setup["device"])
    about = {
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "precision": f"weights expanded to {dtype}, on {setup['device']}".replace("torch.", ""),
        "modes": list(MODES),
    }

    def answer(question: dict[str, Any]) -> Answer:
        if "json_schema" in question:
            return {"error": "it knows no JSON schemas"}
        prompt = torch.tensor([question["prompt"]], device=setup["device"])
        arrivals = Arrivals()
        with torch.inference_mode():
            tokens = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=question["num_tokens"],
                do_sample=False,
                streamer=arrivals,
                **MODES[question["mode"]],
            )[0, prompt.shape[1] :]
        return {"tokens": tokens.tolist(), "arrivals": _cut(arrivals.times, len(tokens))}

    return about, answer


def _load(transformers: Any, dtype: Any, path: str) -> Any:
    files = {"gguf_file": os.path.basename(path)} if os.path.isfile(path) else {}
    folder = os.path.dirname(path) if files else path
    load = transformers.AutoModelForCausalLM.from_pretrained
    model = load(folder, dtype=dtype, **files).eval()
    model.generation_config.eos_token_id = None  # exactly as many tokens as asked for
    model.generation_config.pad_token_id = 0
    return model


def _cut(times: list[tuple[float, int]], num_tokens: int) -> list[tuple[float, int]]:
    """Count only the kept tokens: prompt lookup streams guesses beyond the limit."""
    kept: list[tuple[float, int]] = []
    left = num_tokens
    for at, num in times:
        if left > 0:
            kept.append((at, min(num, left)))
            left -= num
    return kept


if __name__ == "__main__":
    serve(start)
