"""Which contents of a store go beside runs at work (``named.py``), and which do not: what is about
to be named (``held.py``), and what somebody copies (``lock.py``)."""
