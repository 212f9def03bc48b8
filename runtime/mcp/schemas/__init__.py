"""A value tried by a JSON schema that a server has written.

dialect.py                   the version of JSON Schema in which it is written
trial.py                     a trial, within so many steps; what fits, what does not, and what
                             is left to the server
keywords.py, unevaluated.py  what each keyword demands
vocabulary.py                which of them each dialect has, and which are left to the server
"""
