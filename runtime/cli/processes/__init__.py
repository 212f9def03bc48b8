"""The commands that are processes at work on a store until they are told to leave."""
