"""Many prompts, no server: as fast as this machine goes."""

from __future__ import annotations

from forerun import LLM, SamplingParams

llm = LLM("smollm2-135m", max_num_seqs=16, max_model_len=1024)
cities = ["Paris", "Rome", "Cairo", "Lima", "Oslo", "Quito", "Delhi", "Tokyo"]
chats = [[{"role": "user", "content": f"What is {city} known for?"}] for city in cities]
for city, result in zip(
    cities, llm.chat(chats, SamplingParams(temperature=0, max_tokens=48)), strict=True
):
    print(f"{city}: {result.outputs[0].text.strip()}")
