"""A code-editing loop with Predicted Outputs: the file as it is predicts the file as it will be."""

from __future__ import annotations

import os
import time

import openai

CODE = """\
def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)


def variance(values):
    middle = mean(values)
    total = 0
    for value in values:
        total += (value - middle) ** 2
    return total / len(values)
"""
EDITS = ["Rename `total` to `result`.", "Rename `values` to `numbers`."]

client = openai.OpenAI(
    base_url=os.environ.get("FORERUN_URL", "http://127.0.0.1:8000/v1"), api_key="none"
)
model = client.models.list().data[0].id

code = CODE
for edit in EDITS:
    asked = f"{edit} Answer with the whole file and nothing else.\n\n{code}"
    for prediction in (None, {"type": "content", "content": code}):
        began = time.perf_counter()
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": asked}],
            temperature=0,
            max_completion_tokens=200,
            **({} if prediction is None else {"prediction": prediction}),
        )
        details = answer.usage.completion_tokens_details
        print(
            f"{edit} {'with' if prediction else 'without'} a prediction: "
            f"{time.perf_counter() - began:.2f} s, "
            f"{details.accepted_prediction_tokens} predicted tokens accepted, "
            f"{details.rejected_prediction_tokens} did not"
        )
    code = answer.choices[0].message.content
print(code)
