"""One prompt, plain and with speculation: the same tokens in fewer passes.

python examples/quickstart.py [MODEL]
"""

import sys

from forerun import LLM, SamplingParams

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
prompt = "one two three four one two three four one two"
params = SamplingParams(temperature=0.7, seed=3, max_tokens=48)

llm = LLM(model)
speculative = llm.generate(prompt, params)[0].outputs[0]
plain = llm.with_speculation(None).generate(prompt, params)[0].outputs[0]

print(speculative.text)
print(f"passes: {speculative.stats['target_passes']} instead of {plain.stats['target_passes']}")
assert speculative.token_ids == plain.token_ids, "the promise of bits is broken"
