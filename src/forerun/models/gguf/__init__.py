"""GGUF files, as llama.cpp writes them."""
