"""From Python and IR to machine code: lanes, loops, compiling, and compiled code on disk."""
