"""From the model's word to the client's delta: a fake model speaks one word every 50 ms. `python .ci/first_words.py`"""

import http.client
import json
import os
import pathlib
import socket
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import narrator_app as n  # noqa: E402

WORDS, PAUSE, ROUNDS = 12, 0.05, 5
SPOKEN = []


def speak(connection):
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for number in range(WORDS):
        time.sleep(PAUSE)
        SPOKEN.append(time.perf_counter())
        connection.sendall(json.dumps({"message": {"content": f"word{number} "}, "done": False}).encode() + b"\n")
    connection.sendall(json.dumps({"message": {"content": ""}, "done": True, "done_reason": "stop"}).encode() + b"\n")
    connection.close()


def main():
    model = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: [speak(model.accept()[0]) for _ in range(ROUNDS)], daemon=True).start()
    os.environ.update(OLLAMA_BASE_URL=f"127.0.0.1:{model.getsockname()[1]}", CALL_LOG_PATH=os.devnull)
    server = n.Server(("127.0.0.1", 0), n.Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    first, lumps, late = [], 0, []
    for _ in range(ROUNDS):
        SPOKEN.clear()
        client = http.client.HTTPConnection("127.0.0.1", server.server_port)
        canon_log = {"schema_version": 1, "location": "an inn", "player": {"name": "A"}}
        client.request(
            "POST",
            "/dm/narrate",
            json.dumps(canon_log),
            {"Content-Type": "application/json", "Accept": "text/event-stream"},
        )
        read, heard = client.getresponse(), []
        while line := read.readline():
            if b'"text"' in line:
                heard.append(time.perf_counter())
        late += [1000 * (there - here) for here, there in zip(SPOKEN, heard, strict=True)]
        first.append(late[-WORDS])
        lumps += sum(two - one < PAUSE / 2 for one, two in zip(heard, heard[1:], strict=False))
    print(f"first delta after the first word: median {statistics.median(first):.2f} ms, worst {max(first):.2f} ms")
    print(f"every delta: median {statistics.median(late):.2f} ms, worst {max(late):.2f} ms")
    print(f"{lumps} of {len(late)} came in a lump", flush=True)  # os._exit() flushes nothing
    return statistics.median(first) > 10 or lumps > len(late) // 10


os._exit(int(main()))
