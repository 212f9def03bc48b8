"""What a store need not keep: the rule (``retention.py``), and having it go (``pruning.py``)."""
