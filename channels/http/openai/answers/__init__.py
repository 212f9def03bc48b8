"""What came of one item in a run's inbox, told in the forms of OpenAI's API.

    events ──► AgentTurn (when it is over) ──► AgentAnswer (its parts) ──► ResponseFrames
                                                                      └──► ChatChunks

Reading order: ``identifiers``, ``question``, ``turn``, ``parts``, ``answer``, ``response_object``,
``response_frames``, ``chat_chunks``, ``following`` (from the hub to these), ``refusals``.
"""
