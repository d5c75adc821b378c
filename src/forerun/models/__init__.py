"""The Llama family, and everything that a model is read from.

llama.py      the model: one file for every family
opening.py    one door to GGUF files, Hugging Face folders and pulled names
gguf/, hf/    how the two kinds of file say what a model is
weights/      tensors by name, their formats and shapes
text/         tokenizer, chat template, text that grows
download/     where models come from, and where they are kept
"""
