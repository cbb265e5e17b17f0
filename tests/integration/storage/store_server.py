"""What the fakes of object stores have in common: the folders within a root, over HTTP."""

import contextlib
import http.server
import os
import ssl
import threading

PAGE = 2  # objects an answer of a listing, so that every larger one takes several


class StoreServer:
    """At a free port of this machine until it is closed."""

    def __init__(self, root, handler, certificate=None):
        self.root = root
        self.requests = []  # (method, path with query, range or None)
        self.refuse = None  # a status that every request is answered with
        handler = type("Handler", (handler,), {"store": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._scheme = "http"
        if certificate is not None:  # a file that holds it and its key
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self):
        return "%s://127.0.0.1:%d" % (self._scheme, self._server.server_port)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def names(self, bucket):
        """All objects of a bucket in ascending order; None if there is no such bucket."""
        folder = os.path.join(self.root, bucket)
        if not os.path.isdir(folder):
            return None
        found = []
        for parent, _, files in os.walk(folder):
            found += [os.path.relpath(os.path.join(parent, name), folder) for name in files]
        return sorted(found)


class StoreHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def log_message(self, *_):
        pass

    def page(self, names, query, token, size=PAGE):
        """A page of a listing, (name, whether it is an object), and the next page's token."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        every = {}
        for name in names:
            if not name.startswith(prefix):
                continue
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            every[name if end < 0 else name[: end + 1]] = end < 0
        every = sorted(every.items())
        start = int(query.get(token) or 0)
        more = str(start + size) if start + size < len(every) else ""
        return every[start : start + size], more

    def piece(self, data, asked):
        """Status, bytes and headers for a request of the range, if any; None beyond the end."""
        if not asked:
            return 200, data, {}
        first, last = asked[len("bytes=") :].split("-")
        total = len(data)
        if int(first) >= total:
            return None
        last = min(int(last), total - 1) if last else total - 1
        span = "bytes %s-%d/%d" % (first, last, total)
        return 206, data[int(first) : last + 1], {"Content-Range": span}

    def write(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, str(value))
        # Arrow's client breaks off what it does not want.
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(body)
