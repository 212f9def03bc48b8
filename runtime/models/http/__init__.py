"""One attempt over HTTP, as every provider shares it."""
