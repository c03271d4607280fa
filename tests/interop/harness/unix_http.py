"""HTTP over a Unix socket."""

import http.client
import socket


class UnixHttp(http.client.HTTPConnection):
    """A connection to an API on the socket at `path`."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)
