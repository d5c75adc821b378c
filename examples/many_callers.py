"""Several asyncio tasks share one engine; one of them loses interest.

python examples/many_callers.py [MODEL]
"""

import asyncio
import sys

from forerun import LLM, AsyncEngine, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"


async def tell(engine: AsyncEngine, topic: str) -> str:
    params = SamplingParams(temperature=0.7, seed=5, max_tokens=24)
    text = ""
    async for event in engine.stream(f"A line about {topic}:", params):
        text += event.text
    return text


async def main() -> None:
    async with AsyncEngine(LLM(MODEL)) as engine:
        tasks = [asyncio.create_task(tell(engine, t)) for t in ("rivers", "stars", "bread", "rust")]
        await asyncio.sleep(0)
        tasks[-1].cancel()
        for answer in await asyncio.gather(*tasks, return_exceptions=True):
            print(repr(answer))


asyncio.run(main())
