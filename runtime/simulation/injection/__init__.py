"""Faults put into models, tools, listeners and stores."""
