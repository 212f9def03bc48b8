"""The hub over HTTP: one ASGI app for browsers, programs and clients of OpenAI."""
