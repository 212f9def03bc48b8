"""Having go, beside runs at work, what a retention does not keep (``passes.py``)."""
