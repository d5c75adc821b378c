"""The OpenAI-compatible server: what `forerun serve` runs.

fields/      which fields of a body are honoured, without effect or refused; one list
answers/     from an engine's rounds to OpenAI's objects and stream events
routes/      one thin file per family of addresses
operation/   how it is configured, guarded, watched, started and stopped
"""
