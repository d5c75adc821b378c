"""Models from package indexes and the hub, kept in the cache directory."""
