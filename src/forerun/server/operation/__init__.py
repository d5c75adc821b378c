"""How the server is configured, guarded, watched, started and stopped."""
