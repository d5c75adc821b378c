"""The promise of the same tokens, checked run by run."""
