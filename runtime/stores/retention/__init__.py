"""What a store need not keep: the rule (``retention.py``, of ``amounts.py``), and having it go
(``pruning.py``)."""
