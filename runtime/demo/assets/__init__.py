"""The seed's example: a worker and a reviewer who draw for a director."""
