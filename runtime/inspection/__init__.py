"""What a store holds: shown, exported, imported, checked, copied."""
