"""A program that is an MCP server over its standard input and output, of the kind it is told."""

import json
import os
import sys
import time


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


TOOLS = [
    {"name": name, "description": name, "inputSchema": {"type": "object"}}
    for name in ("echo", "die", "die_after", "wait", "late", "env", "lie", "noise")
]


def answer(id_: object, name: str, arguments: dict) -> None:
    text = json.dumps(arguments)
    if "broken" in arguments:
        say({"jsonrpc": "2.0", "id": id_, "result": {"content": "no list", "isError": "perhaps"}})
        return
    if name == "die":
        os._exit(3)
    if name == "wait":
        return
    if name == "env":
        text = json.dumps(dict(os.environ))
    if name == "lie":
        for wrong in (id_ + 1000, "x", None, True, -1, [1]):
            say({"jsonrpc": "2.0", "id": wrong, "result": {"content": []}})
    if name == "noise":
        sys.stdout.write('garbage\n\x00\n{]\n{}\n[]\n"x"\n' + "x" * 100_000 + "\n")
        sys.stdout.flush()
    say({"jsonrpc": "2.0", "id": id_, "result": {"content": [{"type": "text", "text": text}]}})
    if name == "die_after":
        os._exit(3)


def serve(kind: str) -> None:
    cancelled: list[object] = []
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if kind == "mute":
            continue
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "x", "version": "1"}
            say(
                {
                    "jsonrpc": "2.0",
                    "id": id_,
                    "result": {
                        "protocolVersion": version,
                        "capabilities": capabilities,
                        "serverInfo": info,
                    },
                }
            )
        elif method == "tools/list":
            tools = TOOLS
            if kind == "many":
                tools = [{**TOOLS[0], "name": f"t{n:05}"} for n in range(10_000)]
            result = {"tools": tools}
            if kind == "endless":
                result["nextCursor"] = str(time.time())
            say({"jsonrpc": "2.0", "id": id_, "result": result})
        elif method == "tools/call":
            answer(id_, message["params"]["name"], message["params"].get("arguments", {}))
        elif method == "notifications/cancelled":
            cancelled.append(message["params"]["requestId"])
            with open(os.environ.get("CANCELLED", os.devnull), "a") as file:
                file.write("cancelled\n")
            # What comes now comes too late.
            say({"jsonrpc": "2.0", "id": cancelled[-1], "result": {"content": []}})
        elif method and id_ is not None:
            if kind == "dies when asked":
                os._exit(4)
            error = {"code": -32601, "message": "Method not found"}
            say({"jsonrpc": "2.0", "id": id_, "error": error})


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else ""
    if which == "dead":
        sys.exit("no configuration found")
    serve(which)
