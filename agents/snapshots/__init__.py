"""What a snapshot of a run holds: its state as text, and by which fold it was made."""
