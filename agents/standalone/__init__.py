"""Frames driven by hand: the stack of interactive agents, as data."""
