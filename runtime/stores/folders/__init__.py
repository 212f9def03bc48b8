"""Agents' folders: written behind the store, compared, read back."""
