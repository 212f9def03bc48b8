"""What everything that runs shares: timers, budgets, families, outcomes, handles."""
