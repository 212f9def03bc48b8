"""What the endpoints of hubbub's own API do: one file a noun."""
