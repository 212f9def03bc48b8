"""Attacks on what the library guarantees: hostile texts, exceptions, files, clocks, processes.

Short with the other tests; long by ``uv run python -m tests.attacks.run``.
"""
