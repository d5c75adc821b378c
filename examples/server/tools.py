"""An agent's loop: the model calls functions, they run here, and it gets their results.

forerun serve qwen2.5-coder-1.5b            # or any model that was trained to call functions
python examples/server/tools.py "What is the weather in Paris?"
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from openai import OpenAI

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "How the weather is in a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 40}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]
MOST_ROUNDS = 4


def weather(city: str) -> str:
    """Of a city somewhere; yours would ask a service."""
    return f"{len(city)} degrees and dry in {city}"


FUNCTIONS = {"weather": weather}


def main() -> None:
    client = OpenAI(
        base_url=os.environ.get("FORERUN_URL", "http://127.0.0.1:8000/v1"), api_key="none"
    )
    model = client.models.list().data[0].id
    question = " ".join(sys.argv[1:]) or "What is the weather in Paris?"
    messages: Any = [{"role": "user", "content": question}]
    for num in range(MOST_ROUNDS):
        # The first answer must call, so that models which seldom do show how it goes.
        answer = client.chat.completions.create(
            model=model,
            messages=messages,
            tools=TOOLS,
            tool_choice="auto" if num else "required",
            parallel_tool_calls=False,
            max_tokens=200,
            temperature=0,
        )
        message = answer.choices[0].message
        messages.append(message)
        if not message.tool_calls or answer.choices[0].finish_reason != "tool_calls":
            print(message.content)
            return
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            found = FUNCTIONS[call.function.name](**arguments)
            print(f"{call.function.name}({arguments}) → {found}")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


if __name__ == "__main__":
    main()
