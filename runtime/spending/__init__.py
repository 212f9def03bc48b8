"""What models cost, and what trees of runs have used of what they may use."""
