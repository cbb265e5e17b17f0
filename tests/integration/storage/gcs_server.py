"""Serves the folders within a root as buckets over the JSON API of Google Cloud Storage.

A fake: what Arrow's client asks for to list, look at and read objects, and nothing else.
Versions are counted by generation: an object that changed is another one.
"""

import datetime
import json
import os
import urllib.parse

from tests.integration.storage import store_server


class GcsServer(store_server.StoreServer):
    def __init__(self, root, token=None):
        """`token`: what requests must carry; None: they must carry none."""
        super().__init__(root, _Handler)
        self.token = token

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


class _Handler(store_server.StoreHandler):
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
        page, more = self.page(names, query, "pageToken")
        answer = {
            "kind": "storage#objects",
            "items": [self.store.metadata(bucket, name) for name, is_item in page if is_item],
            "prefixes": [name for name, is_item in page if not is_item],
        }
        if more:
            answer["nextPageToken"] = more
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
        found = self.piece(data, self.headers.get("Range"))
        if found is None:
            return self.fail(416, "Requested range not satisfiable")
        status, data, headers = found
        headers["x-goog-generation"] = metadata["generation"]
        return self.send(status, data, "application/octet-stream", headers)

    def answer(self, value):
        self.send(200, json.dumps(value).encode(), "application/json", {})

    def fail(self, status, message):
        error = {"error": {"code": status, "message": message, "errors": []}}
        self.send(status, json.dumps(error).encode(), "application/json", {})

    def send(self, status, body, kind, headers):
        own = {"Content-Type": kind, "Content-Length": len(body)}
        self.write(status, {**headers, **own}, body)
