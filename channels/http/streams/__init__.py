"""Streams of events over HTTP: server-sent events and WebSockets.

    hub.subscribe ──► EventStream ──► Frames (each event encoded once) ──► all that waits, at once

Reading order: ``positions`` (what a client keeps to continue), ``frames``, ``wanted`` (which events
a client asks for), ``connections`` (writing, signs of life, ending), ``sse``, ``commands`` and
``websocket``, ``routes``.

A connection is a subscriber and nothing more: no run begins or ends with it.
"""
