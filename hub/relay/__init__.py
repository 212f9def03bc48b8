"""Pieces of answers on their way between the hubs of several processes.

Reading order: ``delta_relay`` (what is sent and heard, and when), ``interest`` (what is listened
to), ``outgoing_deltas`` (what waits to be sent), ``frames`` (how it is written).
"""
