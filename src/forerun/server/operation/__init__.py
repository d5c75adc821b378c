"""The server's configuration, access control, metrics, start and shutdown."""
