"""What is remembered of long runs that leave memory, so that they need not be read whole."""
