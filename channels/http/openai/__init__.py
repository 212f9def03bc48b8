"""The endpoints that clients of OpenAI know: models, responses, chat completions."""
