# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""server.py http|unix: gives samples, each after so many milliseconds of sleep or of computing, which the
request says. It ends with the lab that started it. Its first line of output says where it listens."""

import ctypes
import http.server
import json
import os
import signal
import socketserver
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from loop import burn  # noqa: E402

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
NAME = "sample-server"
SAMPLE = bytes(4096)


def make(how, ms):
    if how == "compute":
        burn(ms)
    elif ms:
        time.sleep(ms / 1000)


class Http(http.server.BaseHTTPRequestHandler):
    """GET /HOW/MS"""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one segment: no delay of Nagle's
    disable_nagle_algorithm = True

    def do_GET(self):
        _, how, ms = self.path.split("/")
        make(how, float(ms))
        self.send_response(200)
        self.send_header("Content-Length", str(len(SAMPLE)))
        self.end_headers()
        self.wfile.write(SAMPLE)

    def log_message(self, *_):
        pass


class Unix(socketserver.StreamRequestHandler):
    """A line "HOW MS"."""

    def handle(self):
        for line in self.rfile:
            how, ms = line.decode().split()
            make(how, float(ms))
            self.wfile.write(SAMPLE)


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def main():
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(PR_SET_NAME, NAME.encode())
    if sys.argv[1] == "http":
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http)
        where = {"port": server.server_address[1]}
    else:
        folder = tempfile.mkdtemp(prefix="dlbpf-lab-server-")
        where = {"path": os.path.join(folder, "socket")}
        server = UnixServer(where["path"], Unix)
    print(json.dumps(where), flush=True)
    try:
        server.serve_forever()
    finally:
        if "path" in where:
            os.unlink(where["path"])
            os.rmdir(folder)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()
