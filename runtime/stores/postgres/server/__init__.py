"""A PostgreSQL server: its address, connections to it, and what its errors mean.

Reading order: ``address``, ``attentive``, ``connection``, ``faults``.
"""
