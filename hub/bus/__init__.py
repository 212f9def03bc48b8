"""What carries pieces of answers between the processes of a shared store: the port, and the bus of
simulated worlds."""
