"""Tools of MCP servers: connections that belong to a runtime, and what their tools are.

    servers.py     all servers of a runtime; which tools there are just now
    connection.py  one server: opened, followed and closed in one task, and opened again
    server_call.py one call, between the run that makes it and the connection; for which it asks
    opening.py     a client of the SDK for a command, an address, or an object
    watching.py    what the server says, heard before the SDK hears it; told.py: what is told of it
    stdio.py, lines.py, http.py: a command, and what it prints; an address
    answers.py     an answer without what is malformed in it; failures.py: what is said of failures
    pages.py, listing.py: what a server lists, made into tools
    schema_check.py, results.py, elicitation.py: arguments, results, questions to users
    schemas/       a value tried by a server's schema, within so many steps

Only this room imports the SDK, ``mcp``, and not before a runtime that has such servers is entered.
"""
