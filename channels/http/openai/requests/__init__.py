"""What a request asks for, and which run is told.

Reading order: ``body``, ``wanted``, ``chat_body``, ``responses_body``, ``transcript``,
``exchanges``, ``extending``, ``placing``.
"""
