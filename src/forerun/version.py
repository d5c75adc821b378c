"""The version of the package, defined only here."""

VERSION = "0.3.0.dev0"
