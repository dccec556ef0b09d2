"""The version of the distribution: the build reads it here, the programs show it."""

__version__ = "0.1.0"
