"""Many prompts through a few places at once; each answer is what it would be alone.

python examples/offline_batch.py [MODEL]
"""

import sys

from forerun import LLM, SamplingParams

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
prompts = [f"A sentence about the number {number}:" for number in range(1, 9)]
params = SamplingParams(temperature=0.8, top_p=0.95, seed=11, max_tokens=24)

llm = LLM(model, max_num_seqs=4)
together = llm.generate(prompts, params)
for result in together:
    print(repr(result.outputs[0].text))

(alone,) = llm.generate(prompts[5], params)
assert alone.outputs[0].token_ids == together[5].outputs[0].token_ids
