"""Passes as the device takes them: what is sent, kept, and begun early."""
