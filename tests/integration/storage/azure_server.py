"""Serves the folders within a root as containers over the REST API of Azure Blob Storage.

A fake: what Arrow's client asks for to list, look at and read blobs, and nothing else. It
checks each request's signature by SharedKey, as the API's reference describes it. Names of
accounts stand in the path, as at every address of one's own.
"""

import base64
import email.utils
import hashlib
import hmac
import os
import threading
import time
import urllib.parse
import xml.sax.saxutils

from tests.integration.storage import store_server
from tests.integration.storage.store_server import PAGE

ACCOUNT = "mine"
KEY = base64.b64encode(b"a key of the tests, not of a store").decode()
# Signed in this order, by their values alone.
SIGNED = (
    "Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type",
    "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
)  # fmt: skip


def signature(key, method, path, headers):
    """The signature of a request of ACCOUNT; `headers`: (name, value)."""
    found = {name.lower(): value.strip() for name, value in headers}
    values = [found.get(name.lower(), "") for name in SIGNED]
    if values[2] == "0":
        values[2] = ""
    url = urllib.parse.urlsplit(path)
    lines = [method] + values
    lines += ["%s:%s" % item for item in sorted(found.items()) if item[0].startswith("x-ms-")]
    lines.append("/" + ACCOUNT + url.path)
    query = {}
    for name, value in urllib.parse.parse_qsl(url.query, keep_blank_values=True):
        query.setdefault(name.lower(), []).append(value)
    lines += ["%s:%s" % (name, ",".join(sorted(query[name]))) for name in sorted(query)]
    digest = hmac.new(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256)
    return base64.b64encode(digest.digest()).decode()


class AzureServer(store_server.StoreServer):
    def __init__(self, root):
        super().__init__(root, _Handler)
        self.failures = 0  # so many reads of blobs fail from now on
        self.cuts = 0  # so many end in their middle
        self.delay = 0.0  # of each answer, in seconds
        self.lock = threading.Lock()

    def takes(self, counter):
        """Counts one of `failures` or `cuts` down; false if none is left."""
        with self.lock:
            left = getattr(self, counter)
            setattr(self, counter, max(left - 1, 0))
            return left > 0

    def properties(self, container, name):
        seen = os.stat(os.path.join(self.root, container, name))
        return {
            "Last-Modified": email.utils.formatdate(seen.st_mtime, usegmt=True),
            "Etag": '"0x%X"' % seen.st_mtime_ns,
            "Content-Length": seen.st_size,
            "Content-Type": "application/octet-stream",
        }


class _Handler(store_server.StoreHandler):
    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        asked = self.headers.get("x-ms-range") or self.headers.get("Range")
        self.store.requests.append((self.command, self.path, asked))
        time.sleep(self.store.delay)
        if self.store.refuse is not None:
            return self.fail(self.store.refuse, "RefusedByTheTest", "refused by the test")
        wanted = "SharedKey %s:%s" % (
            ACCOUNT, signature(KEY, self.command, self.path, self.headers.items()),
        )  # fmt: skip
        if self.headers.get("Authorization") != wanted:
            return self.fail(
                403, "AuthenticationFailed", "Server failed to authenticate the request."
            )
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        path = [urllib.parse.unquote(part) for part in url.path.split("/")[2:]]
        container, name = path[0], "/".join(path[1:])
        names = self.store.names(container)
        if names is None:
            return self.fail(404, "ContainerNotFound", "The specified container does not exist.")
        if query.get("action") == "getAccessControl":
            # As an account without a hierarchical namespace.
            return self.fail(
                400, "HierarchicalNamespaceNotEnabled",
                "This endpoint does not support BlobStorageEvents or SoftDelete.",
            )  # fmt: skip
        if query.get("restype") == "container":
            if query.get("comp") == "list":
                return self.send(200, self.listing(container, names, query), "application/xml")
            return self.send(200, b"", "application/xml", self.container())
        if not query or set(query) == {"comp"}:
            return self.blob(container, name, asked)
        return self.fail(400, "UnsupportedByTheFake", "the fake does not know " + self.path)

    def container(self):
        return {
            "Last-Modified": email.utils.formatdate(0, usegmt=True), "ETag": "\"0x1\"",
            "x-ms-lease-status": "unlocked", "x-ms-lease-state": "available",
            "x-ms-has-immutability-policy": "false", "x-ms-has-legal-hold": "false",
        }  # fmt: skip

    def listing(self, container, names, query):
        size = min(PAGE, int(query.get("maxresults") or PAGE))
        page, more = self.page(names, query, "marker", size)
        entries = []
        for name, is_item in page:
            said = "<Name>%s</Name>" % xml.sax.saxutils.escape(name)
            if is_item:
                values = {**self.store.properties(container, name), "BlobType": "BlockBlob"}
                said += "<Properties>%s</Properties>" % "".join(
                    "<%s>%s</%s>" % (key, xml.sax.saxutils.escape(str(value)), key)
                    for key, value in values.items()
                )
            entries.append("<Blob>%s</Blob>" % said if is_item
                           else "<BlobPrefix>%s</BlobPrefix>" % said)  # fmt: skip
        return (
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults "
            "ServiceEndpoint=\"%s/%s\" ContainerName=\"%s\"><Prefix>%s</Prefix><Blobs>%s</Blobs>"
            "<NextMarker>%s</NextMarker></EnumerationResults>"
            % (self.store.endpoint, ACCOUNT, container,
               xml.sax.saxutils.escape(query.get("prefix", "")), "".join(entries), more)
        ).encode()  # fmt: skip

    def blob(self, container, name, asked):
        path = os.path.join(self.store.root, container, name)
        if not os.path.isfile(path):
            return self.fail(404, "BlobNotFound", "The specified blob does not exist.")
        values = self.store.properties(container, name)
        headers = {
            "Last-Modified": values["Last-Modified"], "ETag": values["Etag"],
            "x-ms-blob-type": "BlockBlob", "x-ms-creation-time": values["Last-Modified"],
            "x-ms-lease-status": "unlocked", "x-ms-lease-state": "available",
            "x-ms-server-encrypted": "true", "Accept-Ranges": "bytes",
        }  # fmt: skip
        if self.headers.get("If-Match") not in (None, "*", values["Etag"]):
            return self.fail(412, "ConditionNotMet", "The condition is not met.")
        total = values["Content-Length"]
        if self.command == "HEAD":
            return self.send(200, None, values["Content-Type"], headers, length=total)
        if self.store.takes("failures"):
            return self.fail(500, "InternalError", "The server encountered an internal error.")
        with open(path, "rb") as file:
            data = file.read()
        found = self.piece(data, asked)
        if found is None:
            return self.fail(416, "InvalidRange", "The range specified is invalid.")
        status, data, more = found
        headers.update(more)
        cut = len(data) // 2 if self.store.takes("cuts") else None
        return self.send(status, data, values["Content-Type"], headers, cut=cut)

    def fail(self, status, code, message):
        body = "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>%s</Message></Error>" % (
            code, xml.sax.saxutils.escape(message),
        )  # fmt: skip
        if self.command == "HEAD":
            return self.send(status, None, None, {"x-ms-error-code": code})
        return self.send(status, body.encode(), "application/xml", {"x-ms-error-code": code})

    def send(self, status, body, kind, headers=(), length=None, cut=None):
        body = body or b""
        self.write(status, {
            "Content-Type": kind, "Content-Length": len(body) if length is None else length,
            "x-ms-request-id": "1", "x-ms-version": self.headers.get("x-ms-version", ""),
            **dict(headers),
        }, b"" if self.command == "HEAD" else body[:cut])  # fmt: skip
        if cut is not None:
            self.close_connection = True
