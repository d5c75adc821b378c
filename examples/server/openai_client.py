"""The official client against `forerun serve`: an answer, a stream, and what speculation saved."""

from __future__ import annotations

import os

import openai

client = openai.OpenAI(
    base_url=os.environ.get("FORERUN_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("FORERUN_KEY", "none"),
)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "Name three colours, and say what each is like."}]

answer = client.chat.completions.create(
    model=model, messages=messages, temperature=0, max_completion_tokens=80
)
print(answer.choices[0].message.content)
print(answer.usage.forerun)

stream = client.chat.completions.create(
    model=model,
    messages=messages,
    seed=7,
    max_completion_tokens=80,
    stream=True,
    extra_body={"speculative": {"num_speculative_tokens": 8}},
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
