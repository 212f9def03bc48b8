"""How definitions fit together: names resolved, sides read, skills made into agents."""
