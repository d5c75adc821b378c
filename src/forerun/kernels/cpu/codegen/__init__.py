"""Code generation, from Python and IR to machine code, and compiled code on disk."""
