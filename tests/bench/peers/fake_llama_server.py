"""Stands in for llama.cpp's `llama-server`: the same options, log lines and stream of tokens."""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

SPEC_TYPES = "none,draft-simple,ngram-simple,ngram-mod"


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        is_guessing = "--spec-type" in sys.argv
        tokens = asked["json_schema"]["enum"] if "json_schema" in asked else asked["prompt"]
        for token in tokens[: asked["n_predict"]]:
            self._send({"tokens": [token]})
        num = 4 if "--flash-attn" in sys.argv else 8  # shows which option was used
        counts = {"draft_n": num, "draft_n_accepted": num - 2} if is_guessing else {}
        self._send({"tokens": [], "timings": counts})

    def _send(self, event: object) -> None:
        self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    arguments = sys.argv[1:]
    if "--help" in arguments:
        print(f"--spec-type {SPEC_TYPES}\n       comma-separated list")
        print("-fa,   --flash-attn [on|off|auto]       set Flash Attention use")
    elif "--version" in arguments:
        print("version: 7 (c0ffee)\nbuilt with beads", file=sys.stderr)
    elif "-lv" in arguments:
        print("0.00 I system_info: n_threads = 2 | CPU : ABACUS = 1 |", file=sys.stderr)
        sys.exit(1)  # no model
    elif "crash" in arguments[arguments.index("--model") + 1]:
        os.kill(os.getpid(), signal.SIGILL)
    elif os.path.getsize(arguments[arguments.index("--model") + 1]) == 0:
        print("loading\nthe model is empty", file=sys.stderr)
        sys.exit(1)
    else:
        server = HTTPServer(("127.0.0.1", 0), Server)
        with open(f"{arguments[arguments.index('--model') + 1]}.port", "w") as file:
            file.write(str(server.server_port))
        print(f"listening on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
