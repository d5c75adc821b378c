"""What serving over HTTP costs, what a prediction saves, and a server under load."""
