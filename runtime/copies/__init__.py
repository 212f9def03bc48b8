"""Copies of a store in another form, made from the store alone: a whole store elsewhere, folders
of agents."""
