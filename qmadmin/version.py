"""The version of the distribution: the build reads it here, the programs show it."""

__version__ = "0.2.0.dev0"
