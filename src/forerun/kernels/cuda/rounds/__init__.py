"""Whole rounds that begin early: the device knows by itself how many guesses were accepted."""
