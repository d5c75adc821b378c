"""Models of the Llama family, and the files that they are read from.

llama.py      the model: one file for every family
opening.py    opens GGUF files, Hugging Face directories and pulled names
gguf/, hf/    readers of the two kinds of file
weights/      tensors by name, their formats and shapes
text/         tokenizer, chat template, conversations
download/     where models come from, and where they are kept
"""
