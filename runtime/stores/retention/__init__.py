"""What a store need not keep: the rule (``retention.py``, of ``amounts.py``), where it looks
(``trees.py``), and having it go at rest (``pruning.py``)."""
