"""What everything that runs shares: services, phase, live runs, families, outcomes, handles."""
