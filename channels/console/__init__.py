"""The console: a conversation in a terminal."""
