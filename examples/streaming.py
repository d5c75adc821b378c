"""An answer as it grows, with how each piece came about.

python examples/streaming.py [MODEL]
"""

import sys

from forerun import LLM, Origin, SamplingParams

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
llm = LLM(model)

num_guessed = 0
for event in llm.stream("The days of the week: Monday, Tuesday,", SamplingParams(max_tokens=40)):
    print(event.text, end="", flush=True)
    num_guessed += sum(origin is Origin.ACCEPTED for origin in event.origins)
print(f"\n{num_guessed} tokens were guessed before the model said them")
