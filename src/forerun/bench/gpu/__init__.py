"""How fast a GPU runs whole models, against its own memory bandwidth."""
