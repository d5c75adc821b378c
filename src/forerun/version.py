"""The one place that says which version this is."""

VERSION = "0.3.0.dev0"
