"""Finding: what a store says of conversations, agents and schedules, without a runtime."""
