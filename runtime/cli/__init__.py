"""The command line over a store."""
