"""From an engine's rounds to response objects and stream events.

Both are made of deltas: a stream sends them one by one, and a whole response is all of them joined,
so that the two cannot differ.
"""
