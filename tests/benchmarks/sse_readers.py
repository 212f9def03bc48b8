"""Many clients of a stream of server-sent events, in a process of their own.

    python sse_readers.py PORT PATH CLIENTS SLOW

Each connects (``ready`` on standard output, when all have), and reads until its stream ends; the
``SLOW`` ones read nothing at all.  At the end a line of JSON: how many events came, and how late
(seconds from the ``sent`` in their data to here, both by the machine's monotonic clock).
"""

import json
import re
import resource
import selectors
import socket
import sys
import time

SENT = re.compile(rb'"sent":([0-9.]+)')


def main(port: int, path: str, count: int, slow: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    selector = selectors.DefaultSelector()
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    idle = []
    for number in range(count + slow):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(request)
        if number < count:
            assert client.recv(65_536).startswith(b"HTTP/1.1 200")
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ)
        else:
            idle.append(client)
    print("ready", flush=True)
    received, late, ended = 0, [], 0
    while ended < count:
        for key, _ in selector.select(timeout=60):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            data = client.recv(1 << 20)
            now = time.monotonic()
            found = SENT.findall(data)
            received += len(found)
            late += [now - float(each) for each in found]
            if not data or b"hubbub:end" in data:
                selector.unregister(client)
                client.close()
                ended += 1
    late.sort()
    at = {name: late[int(len(late) * share)] for name, share in (("p50", 0.5), ("p99", 0.99))}
    print(json.dumps({"received": received, **at}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
