"""Attacks on what the library guarantees: hostile texts, exceptions, files, clocks and processes.

``uv run pytest tests/attacks`` runs them short; ``uv run python -m tests.attacks.run`` runs them long.
"""
