"""A program that is an MCP server over its standard input and output, and prints wrong things.

What a call prints is what its tool is called."""

import json
import os
import sys


def put(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    sys.stdout.flush()


def say(message: object) -> None:
    put(json.dumps(message) + "\n")


def result(id_: object, value: object) -> dict:
    return {"jsonrpc": "2.0", "id": id_, "result": value}


def text(words: str) -> dict:
    return {"content": [{"type": "text", "text": words}]}


def flood(line: str) -> None:
    while True:
        put(line)


REQUEST = {"jsonrpc": "2.0", "method": "ping"}
LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

PRINTS = {
    "fine": lambda n: say(result(n, text("fine"))),
    "byte_order_mark": lambda n: put("\ufeff" + json.dumps(result(n, text("fine"))) + "\r\n"),
    "surrogate": lambda n: say(result(n, text("fine\ud800"))),
    "raw_surrogate": lambda n: put(
        json.dumps(result(n, text("fine\ud800")), ensure_ascii=False) + "\n"
    ),
    "nan": lambda n: say(result(n, {"content": [], "structuredContent": {"a": float("nan")}})),
    "float_id": lambda n: say(result(float(n), text("fine"))),
    "text_id": lambda n: say(result(str(n), text("fine"))),
    "twice": lambda n: [say(result(n, text("fine"))) for _ in range(2)],
    "null_result": lambda n: say(result(n, None)),
    "text_result": lambda n: say(result(n, "done")),
    "no_result": lambda n: say({"jsonrpc": "2.0", "id": n}),
    "no_version": lambda n: say({"id": n, "result": {}}),
    "text_error": lambda n: say({"jsonrpc": "2.0", "id": n, "error": "broken"}),
    "null_id": lambda n: say(
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "what?"}}
    ),
    "cut_off": lambda n: put(json.dumps(result(n, text("x" * 9_000)))[:-3] + "\n"),
    "two_in_a_line": lambda n: put(json.dumps(result(n, {})) + json.dumps(result(n, {})) + "\n"),
    "deep": lambda n: put(json.dumps(result(n, {})).replace("{}", "[" * 9_000) + "\n"),
    "quite_deep": lambda n: put(
        json.dumps(result(n, {})).replace("{}", '{"a":' * 400 + "1" + "}" * 400) + "\n"
    ),
    "ten_megabytes": lambda n: say(result(n, text("x" * 10_000_000))),
    "noise_before": lambda n: [put("garbage\n" * 50), say(result(n, text("fine")))],
    "logs": lambda n: [[say(LOG) for _ in range(5_000)], say(result(n, text("fine")))],
    "changes": lambda n: [[say(CHANGED) for _ in range(2_000)], say(result(n, text("fine")))],
    "endless_line": lambda n: flood("x" * 65_536),
    "endless_noise": lambda n: flood("garbage\n" * 100),
    "endless_questions": lambda n: flood(json.dumps({**REQUEST, "id": 1}) + "\n"),
    "dies": lambda n: [sys.stderr.write("out of memory\n"), sys.stderr.flush(), os._exit(3)],
}


def listed(id_: object) -> dict:
    names = [{"name": name, "inputSchema": {"type": "object"}} for name in PRINTS]
    return result(id_, {"tools": names})


def serve(kind: str) -> None:
    if kind == "babbles":
        flood("garbage\n" * 100)
    if kind == "banner":
        put("Welcome!\n\n  * starting\n" * 100)
    for line in sys.stdin:
        message = json.loads(line)
        method, id_ = message.get("method"), message.get("id")
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "x", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            about = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            say(result(id_, about))
        elif method == "tools/list":
            if kind == "changes always":
                say(CHANGED)
            say(listed(id_))
        elif method == "tools/call":
            PRINTS[message["params"]["name"]](id_)
        elif method and id_ is not None:
            say({"jsonrpc": "2.0", "id": id_, "error": {"code": -32601, "message": "unknown"}})


if __name__ == "__main__":
    serve(sys.argv[1] if len(sys.argv) > 1 else "")
