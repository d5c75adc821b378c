"""The promise of bits, checked run by run."""
