"""An agent with all it can reach, as one JSON file."""
