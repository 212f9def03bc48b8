"""The inspector: a page that shows what every run does, and what serves it."""
