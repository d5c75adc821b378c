#!/bin/sh
# Requests to `forerun serve` from a shell. The first argument is the server's address.
set -eu
URL="${1:-http://127.0.0.1:8000}"
JSON="Content-Type: application/json"

curl -sSf "$URL/v1/models"; echo
curl -sSf "$URL/v1/completions" -H "$JSON" \
    -d '{"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}'; echo
curl -sSfN "$URL/v1/chat/completions" -H "$JSON" \
    -d '{"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16, "stream": true}'
curl -sSf "$URL/v1/chat/completions" -H "$JSON" -d '{
    "messages": [{"role": "user", "content": "Repeat: one two three four five six seven"}],
    "max_tokens": 24, "temperature": 0,
    "prediction": {"type": "content", "content": "one two three four five six seven"},
    "forerun": {"trace": true}}'; echo
curl -sSf "$URL/v1/chat/completions" -H "$JSON" -d '{
    "messages": [{"role": "user", "content": "Is water wet?"}],
    "structured_outputs": {"choice": ["yes", "no"]}}'; echo
curl -sSf "$URL/metrics" | grep spec_decode
