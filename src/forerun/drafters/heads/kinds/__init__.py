"""One file for each kind of head; a block head has two."""
