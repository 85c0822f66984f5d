"""A server on this machine that speaks as much of Google's XML API as an output needs, conditions included.

The emulators that there are (fake-gcs-server among them) carry out a PUT whatever its condition says. This
one counts generations as Google documents them: every PUT gives an object a larger one, and
``x-goog-if-generation-match: N`` is refused with 412 unless N is the present one, or 0 where there is no
object.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.sax.saxutils import escape

REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found", 412: "Precondition Failed"}
CONDITION, SOURCE = "HTTP_X_GOOG_IF_GENERATION_MATCH", "HTTP_X_GOOG_COPY_SOURCE"
Answer = tuple[int, dict[str, str], bytes]


@dataclass(frozen=True)
class _Object:
    data: bytes
    generation: int
    written: float

    @property
    def headers(self) -> dict[str, str]:
        """Headers of an answer about the object."""
        return {
            "ETag": f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"',
            "Last-Modified": formatdate(self.written, usegmt=True),
            "x-goog-generation": str(self.generation),
        }


@dataclass
class Gcs:
    """The application. Buckets are there as soon as they are named."""

    objects: dict[str, _Object] = field(default_factory=dict)
    """Objects by bucket and key, with a slash between them."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1_700_000_000_000_000))
    _lock: Any = field(default_factory=Lock)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        place = environ["PATH_INFO"].encode("latin-1").decode().lstrip("/")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with self._lock:
            status, headers, content = self._answer(environ, place, body)
        start_response(
            f"{status} {REASONS[status]}", [*headers.items(), ("Content-Length", str(len(content)))]
        )
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

    def _answer(self, environ: dict[str, Any], place: str, body: bytes) -> Answer:
        method, query = environ["REQUEST_METHOD"], parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        if method == "PUT":
            return self._put(environ, place, body)
        if method == "GET" and "list-type" in query:
            return 200, {"Content-Type": "application/xml"}, self._list(place.rstrip("/"), query)
        found = self.objects.get(place)
        if found is None:
            return 404, {}, b""
        if method == "DELETE":
            del self.objects[place]
            return 204, {}, b""
        return _content(found, environ.get("HTTP_RANGE", ""))

    def _put(self, environ: dict[str, Any], place: str, body: bytes) -> Answer:
        present = self.objects.get(place)
        if CONDITION in environ and int(environ[CONDITION]) != (present.generation if present else 0):
            return 412, {}, b""
        if SOURCE in environ:
            source = self.objects.get(unquote(environ[SOURCE]).lstrip("/"))
            if source is None:
                return 404, {}, b""
            body = source.data
        made = self.objects[place] = _Object(body, next(self._numbers), time.time())
        copied = f"<CopyObjectResult><ETag>{made.headers['ETag']}</ETag></CopyObjectResult>"
        return 200, made.headers, copied.encode() if SOURCE in environ else b""

    def _list(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        entries, folders = [], set()
        for place, found in sorted(self.objects.items()):
            key = place.removeprefix(f"{bucket}/")
            if key == place or not key.startswith(prefix):
                continue
            inner = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if inner[1]:
                folders.add(f"{prefix}{inner[0]}{delimiter}")
                continue
            written = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.written))
            entries.append(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(found.data)}</Size>"
                f"<LastModified>{written}</LastModified><ETag>{escape(found.headers['ETag'])}</ETag>"
                f"<Generation>{found.generation}</Generation></Contents>"
            )
        entries += [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)
        ]
        return f"<ListBucketResult>{''.join(entries)}</ListBucketResult>".encode()


def _content(found: _Object, wanted: str) -> Answer:
    if not wanted:
        return 200, found.headers, found.data
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    start = int(first)
    stop = min(int(last) + 1 if last else len(found.data), len(found.data))
    return (
        206,
        found.headers | {"Content-Range": f"bytes {start}-{stop - 1}/{len(found.data)}"},
        found.data[start:stop],
    )


@contextmanager
def gcs_server() -> Iterator[str]:
    """Address of a server in a thread of this process."""
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, Gcs(), threaded=True)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
