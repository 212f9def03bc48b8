"""The agents of ``hubbub chat``, and the rules that answer without a key."""
