"""One thing at a time, measured: answers, passes, products, starts, texts."""
