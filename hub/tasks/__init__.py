"""Tasks in which code runs that is not the library's own.

``outermost`` starts them, and lends a task that is not ours to such code.
"""
