"""Agents' folders: written behind the store, compared with it, imported without it."""
