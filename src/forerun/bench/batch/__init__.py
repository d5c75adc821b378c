"""Requests in flight, measured."""
