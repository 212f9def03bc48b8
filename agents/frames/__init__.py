"""Frames of a conversation as values, for tools that give it away and programs that drive it."""
