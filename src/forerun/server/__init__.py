"""The OpenAI-compatible server: what `forerun serve` runs.

fields/      one list of request fields: which are honoured, without effect or refused
answers/     from an engine's rounds to response objects and stream events
routes/      one thin module per family of endpoints
operation/   configuration, access control, metrics, start and shutdown
"""
