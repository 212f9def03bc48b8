"""What tests share: agents, stores, programs, conversations, machines, and things that fail."""
