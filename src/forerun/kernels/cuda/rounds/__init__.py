"""Whole rounds that begin early (ADR 020): the device itself counts the accepted guesses."""
