"""What all endpoints share: how a request is read, and what is said in an answer.

Reading order: ``route`` (an endpoint as data, and the call of it), ``bodies``, ``problems``,
``receipts``, ``limits``, ``host`` (what the endpoints of one app share).
"""
