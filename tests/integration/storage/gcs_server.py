"""Serves the folders within a root as buckets over the JSON API of Google Cloud Storage.

A fake: what Arrow's client asks for to list, look at and read objects, and nothing else.
Versions are counted by generation: an object that changed is another one.
"""

import contextlib
import datetime
import http.server
import json
import os
import threading
import urllib.parse

PAGE = 5  # objects an answer of a listing, so that every larger one takes several


class GcsServer:
    """At a free port of this machine until it is closed."""

    def __init__(self, root, token=None):
        """`token`: what requests must carry; None: they must carry none."""
        self.root = root
        self.token = token
        self.requests = []  # (method, path with query, range or None)
        self.refuse = None  # a status that every request is answered with
        handler = type("Handler", (_Handler,), {"store": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self):
        return "http://127.0.0.1:%d" % self._server.server_port

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

    def metadata(self, bucket, name):
        seen = os.stat(os.path.join(self.root, bucket, name))
        generation = seen.st_mtime_ns // 1000
        when = datetime.datetime.fromtimestamp(generation / 1e6, datetime.timezone.utc)
        changed = when.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (generation // 1000 % 1000)
        return {
            "kind": "storage#object",
            "id": "%s/%s/%d" % (bucket, name, generation),
            "name": name,
            "bucket": bucket,
            "generation": str(generation),
            "metageneration": "1",
            "size": str(seen.st_size),
            "etag": "E%d" % generation,
            "updated": changed,
            "timeCreated": changed,
        }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        self.store.requests.append(("GET", self.path, self.headers.get("Range")))
        if self.store.refuse is not None:
            return self.fail(self.store.refuse, "refused by the test")
        wanted = self.store.token and "Bearer " + self.store.token
        if self.headers.get("Authorization") != wanted:
            return self.fail(401, "Invalid Credentials")
        path = url.path.split("/")
        if path[1:4] == ["storage", "v1", "b"]:
            bucket, rest = path[4], path[5:]
            names = self.store.names(bucket)
            if names is None:
                return self.fail(404, "The specified bucket does not exist.")
            if not rest:
                return self.answer({"kind": "storage#bucket", "id": bucket, "name": bucket})
            if rest == ["o"]:
                return self.answer(self.listing(bucket, names, query))
            if len(rest) == 2:
                return self.object(bucket, urllib.parse.unquote(rest[1]), query)
        elif len(path) > 2:
            # Reads may take the XML API's paths.
            name = urllib.parse.unquote("/".join(path[2:]))
            return self.object(path[1], name, {**query, "alt": "media"})
        return self.fail(400, "the fake does not know " + self.path)

    def listing(self, bucket, names, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        items, folders = [], []
        for name in names:
            if not name.startswith(prefix):
                continue
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                items.append(name)
            elif name[: end + 1] not in folders:
                folders.append(name[: end + 1])
        every = sorted([(name, True) for name in items] + [(name, False) for name in folders])
        start = int(query.get("pageToken") or 0)
        page = every[start : start + PAGE]
        answer = {
            "kind": "storage#objects",
            "items": [self.store.metadata(bucket, name) for name, is_item in page if is_item],
            "prefixes": [name for name, is_item in page if not is_item],
        }
        if start + PAGE < len(every):
            answer["nextPageToken"] = str(start + PAGE)
        return answer

    def object(self, bucket, name, query):
        path = os.path.join(self.store.root, bucket, name)
        if not os.path.isfile(path):
            return self.fail(404, "No such object: %s/%s" % (bucket, name))
        metadata = self.store.metadata(bucket, name)
        if query.get("generation") not in (None, metadata["generation"]):
            return self.fail(404, "No such object: %s/%s#%s" % (bucket, name, query["generation"]))
        if query.get("alt") != "media":
            return self.answer(metadata)
        with open(path, "rb") as file:
            data = file.read()
        total, status, headers = len(data), 200, {"x-goog-generation": metadata["generation"]}
        asked = self.headers.get("Range")
        if asked:
            first, last = asked[len("bytes=") :].split("-")
            if int(first) >= total:
                return self.fail(416, "Requested range not satisfiable")
            last = min(int(last), total - 1) if last else total - 1
            data, status = data[int(first) : last + 1], 206
            headers["Content-Range"] = "bytes %s-%d/%d" % (first, last, total)
        return self.send(status, data, "application/octet-stream", headers)

    def answer(self, value):
        self.send(200, json.dumps(value).encode(), "application/json", {})

    def fail(self, status, message):
        error = {"error": {"code": status, "message": message, "errors": []}}
        self.send(status, json.dumps(error).encode(), "application/json", {})

    def send(self, status, body, kind, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Type": kind, "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        # Arrow's client breaks off what it does not want.
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(body)
