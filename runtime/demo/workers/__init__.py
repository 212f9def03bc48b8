"""A demo of several workers on one store: agents, processes, what happens to them."""
