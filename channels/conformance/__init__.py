"""Suites that prove a channel of your own: each check takes one and raises where it is wrong."""
