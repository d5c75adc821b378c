"""Kinds of heads; `registry.py` names all."""
