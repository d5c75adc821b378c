"""From an engine's rounds to OpenAI's objects and stream events.

Everything is made of deltas: a stream sends them one by one, a whole answer is all of them joined,
so that the two cannot differ.
"""
