"""Passes as the device runs them: inputs, recordings, and passes that begin early."""
