"""What runs do besides deciding: models, tools, hooks, files, children, questions."""
