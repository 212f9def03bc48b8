"""What goes from a schema beside processes at work, and how these hear of it (``removals.py``)."""
