"""Serves folders as data sets of the Hugging Face hub: its API's `tree`, by pages that a Link
field names, and `resolve`, which redirects large files to another host.

A fake: those two calls, as the hub answers them, and the host that it redirects to.
"""

import hashlib
import json
import os
import urllib.parse

from tests.integration.storage import store_server

# Files of more bytes are redirected, as the hub does with those of LFS.
LARGE = 4096


class Places(store_server.StoreServer):
    """The host that signed addresses lead to. Its ETags are others than the hub's."""

    def __init__(self, root, certificate=None):
        super().__init__(root, _Place, certificate)
        self.cut = 0  # answers that end halfway
        self.expired = set()  # signatures that do not hold any more
        self.tokens = []  # Authorization fields that came


class HubServer(store_server.StoreServer):
    """`root` holds NAME/…, the present files of datasets/team/NAME."""

    def __init__(self, root, certificate=None, certificate_of_places=None):
        super().__init__(root, _Hub, certificate)
        self.places = Places(root, certificate_of_places)
        self.roots = {self.commit("first"): root}
        self.main = next(iter(self.roots))
        self.token = None  # what a private set wants
        self.busy = 0  # answers of 429, with Retry-After
        self.signature = 0
        self.tells_commits = True

    def commit(self, name):
        return hashlib.sha1(name.encode()).hexdigest()

    def moves_to(self, name, root):
        """Makes `root` a later commit of all sets, which `main` then is."""
        self.main = self.commit(name)
        self.roots[self.main] = root

    def close(self):
        self.places.close()
        super().close()


class _Hub(store_server.StoreHandler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        hub = self.store
        hub.requests.append((self.command, self.path, self.headers.get("Range")))
        if hub.refuse is not None:
            return self.fail(hub.refuse, "Refused", "by the test")
        if hub.busy > 0:
            hub.busy -= 1
            return self.write(429, {"Retry-After": 0, "Content-Length": 0})
        if hub.token and self.headers.get("Authorization") != "Bearer " + hub.token:
            # As the hub does, which does not tell that there is such a set.
            return self.fail(401, "RepoNotFound", "Invalid username or password.")
        path = [urllib.parse.unquote(part) for part in url.path.split("/")[1:]]
        if path[:3] == ["api", "datasets", "team"] and path[4] == "tree":
            return self.tree(path[3], path[5], "/".join(path[6:]), query)
        if path[:2] == ["datasets", "team"] and path[3] == "resolve":
            return self.resolve(path[2], path[4], "/".join(path[5:]))
        return self.fail(404, "NotFound", "the fake does not know " + self.path)

    def found(self, name, revision):
        """The folder of the set, and its commit; None if it answered that there is none."""
        commit = self.store.main if revision == "main" else revision
        root = self.store.roots.get(commit)
        if root is None:
            return self.fail(404, "RevisionNotFound", "Invalid rev id: " + revision)
        folder = os.path.join(root, name)
        if not os.path.isdir(folder):
            return self.fail(404, "RepoNotFound", "Repository not found")
        return folder, commit

    def tree(self, name, revision, below, query):
        found = self.found(name, revision)
        if found is None:
            return
        folder, _ = found
        if not os.path.isdir(os.path.join(folder, below)):
            return self.fail(404, "EntryNotFound", "no such folder")
        entries = []
        for parent, folders, files in os.walk(os.path.join(folder, below)):
            for each in folders:
                entries.append(("directory", os.path.join(parent, each)))
            for each in files:
                entries.append(("file", os.path.join(parent, each)))
            if query["recursive"] != "true":
                break
        entries.sort(key=lambda entry: entry[1])
        start = int(query.get("cursor", 0))
        page = [
            {"type": kind, "oid": "0" * 40, "path": os.path.relpath(path, folder),
             "size": os.path.getsize(path) if kind == "file" else 0}
            for kind, path in entries[start : start + store_server.PAGE]
        ]  # fmt: skip
        fields = {"Content-Type": "application/json"}
        if start + store_server.PAGE < len(entries):
            query["cursor"] = str(start + store_server.PAGE)
            address = urllib.parse.urlsplit(self.path).path + "?" + urllib.parse.urlencode(query)
            fields["Link"] = '<%s%s>; rel="next"' % (self.store.endpoint, address)
        body = json.dumps(page).encode()
        self.write(200, {**fields, "Content-Length": len(body)}, body)

    def resolve(self, name, revision, below):
        found = self.found(name, revision)
        if found is None:
            return
        folder, commit = found
        path = os.path.join(folder, below)
        if not os.path.isfile(path):
            return self.fail(404, "EntryNotFound", "Entry not found")
        with open(path, "rb") as file:
            data = file.read()
        fields = {"ETag": '"%s"' % hashlib.sha1(data).hexdigest()}
        if self.store.tells_commits:
            fields["X-Repo-Commit"] = commit
        if len(data) > LARGE:
            self.store.signature += 1
            fields["X-Linked-Size"] = len(data)
            fields["X-Linked-ETag"] = '"%s"' % hashlib.sha256(data).hexdigest()
            fields["Location"] = "%s%s?signature=%d" % (
                self.store.places.endpoint, urllib.parse.quote(path), self.store.signature,
            )  # fmt: skip
            return self.write(302, {**fields, "Content-Length": 0})
        piece = self.piece(data, self.headers.get("Range"))
        if piece is None:
            return self.fail(416, "Range", "beyond the end")
        status, data, more = piece
        body = b"" if self.command == "HEAD" else data
        self.write(status, {**fields, **more, "Content-Length": len(data)}, body)

    def fail(self, status, code, message):
        fields = {"X-Error-Code": code, "X-Error-Message": message, "Content-Length": 0}
        self.write(status, fields)


class _Place(store_server.StoreHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        places = self.store
        places.requests.append(("GET", self.path, self.headers.get("Range")))
        if self.headers.get("Authorization"):
            places.tokens.append(self.headers["Authorization"])
        if url.query in places.expired or not url.query:
            return self.write(403, {"Content-Length": 0})
        with open(urllib.parse.unquote(url.path), "rb") as file:
            data = file.read()
        status, data, more = self.piece(data, self.headers.get("Range"))
        fields = {**more, "ETag": '"of-the-place"', "Content-Length": len(data)}
        if places.cut > 0:
            places.cut -= 1
            self.close_connection = True
            return self.write(status, fields, data[: len(data) // 2])
        self.write(status, fields, data)
