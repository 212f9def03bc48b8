"""Code agents: their lifecycle and their durable steps, as pure data."""
