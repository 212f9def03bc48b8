"""What an agent's folder says, as texts: state, history, conversation."""
