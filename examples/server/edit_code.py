"""Edit a file with Predicted Outputs: the file before the edit is the prediction.

How well the edit turns out depends on the model (SmolLM2-135M omits a lot). The prediction only
makes the parts that it has right come sooner.
"""

from __future__ import annotations

import os
import time

import openai

CODE = """\
def parse_line(line):
    name, _, value = line.partition("=")
    return name.strip(), value.strip()


def read_settings(path):
    settings = {}
    with open(path) as file:
        for line in file:
            if line.startswith("#") or not line.strip():
                continue
            name, value = parse_line(line)
            settings[name] = value
    return settings
"""
RENAMED = {"parse_line": "split_line", "read_settings": "load_settings", "settings": "options"}

client = openai.OpenAI(
    base_url=os.environ.get("FORERUN_URL", "http://127.0.0.1:8000/v1"),
    api_key=os.environ.get("FORERUN_KEY", "none"),
)
model = client.models.list().data[0].id

for old, new in RENAMED.items():
    edit = f"Repeat this code word for word, but write `{new}` instead of `{old}`."
    asked = f"{edit}\n\n```python\n{CODE}```"
    for prediction in (None, {"type": "content", "content": f"```python\n{CODE}```"}):
        began = time.perf_counter()
        answer = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": asked}],
            temperature=0,
            max_completion_tokens=200,
            # Without it the second request would find the first one's prompt computed.
            extra_body={"cache_salt": f"{edit} {prediction is None}"},
            **({} if prediction is None else {"prediction": prediction}),
        )
        details = answer.usage.completion_tokens_details
        print(
            f"{old} as {new}, {'with' if prediction else 'without'} a prediction: "
            f"{time.perf_counter() - began:.2f} s for {answer.usage.completion_tokens} tokens, "
            f"{details.accepted_prediction_tokens} predicted ones accepted, "
            f"{details.rejected_prediction_tokens} not"
        )
print(answer.choices[0].message.content)
