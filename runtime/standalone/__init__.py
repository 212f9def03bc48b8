"""Interactive agents driven by hand, without a runtime."""
