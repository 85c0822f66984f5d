"""One object, or a prefix, of an object store, with the methods of ``pathlib.Path`` that a run needs."""

from __future__ import annotations

import errno
import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, TypeVar

from connectors.base import ConnectorError
from connectors.storage.clients import client, uri_without_secrets

SMALL = 2**20
"""Largest object in bytes that is fetched whole, since one request takes less time than several."""
PART_BYTES = 2**23
"""Bytes of a file in one request; a file of more is put in parts."""
MAX_PARTS = 9_000
"""Most parts of an object; S3 takes 10,000."""
READS = 6
"""Most requests for an answer that breaks off."""
T = TypeVar("T")


class Tag(NamedTuple):
    """Identifies the content of an object: its ETag, and its generation if the store counts generations."""

    e_tag: str | None
    version: str | None

    def same_content(self, other: Tag | None) -> bool:
        """Return whether both identify one content.

        Some stores name the generation where an object is put, and not where objects are listed.
        """
        if other is None or self.e_tag is None or other.e_tag is None:
            return self == other
        return self.e_tag == other.e_tag


class ObjectStat(NamedTuple):
    """Size in bytes and the time of the last write, by the store's clock, in seconds."""

    st_size: int
    st_mtime: float


class RangeReader(io.RawIOBase):
    """Seekable file of ``size`` bytes that requests exactly the bytes read, by ``fetch(start, length)``.

    obstore's own reader lacks ``closed``, which pyarrow asks for, and fetches 1 MiB for every read.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch, self._size, self._at = fetch, size, 0

    def read(self, size: int | None = -1) -> bytes:
        """Return up to ``size`` bytes from the current position; by default all that follow."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._fetch(self._at, length) if length else b""
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        """Return the position at which the next read begins."""
        return self._at

    def readable(self) -> bool:
        """Return True: the file is readable."""
        return True

    def seekable(self) -> bool:
        """Return True: the file is seekable."""
        return True


@dataclass(frozen=True, order=True)
class ObjectPath:
    """A key of a bucket. Picklable; opens the store when it is used first. Its text holds no secret.

    Every method raises OSError: FileNotFoundError, PermissionError (401, 403), FileExistsError where a
    condition does not hold, another one for what the store still refuses after retries.
    """

    root: str = field(repr=False)
    """URI of the bucket, with its access settings."""
    key: str

    def __str__(self) -> str:
        return f"{uri_without_secrets(self.root)}/{self.key}"

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.root, str(PurePosixPath(self.key) / name) if self.key else name)

    @property
    def name(self) -> str:
        """Last part of the key."""
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        """Ending of the name, with its dot."""
        return PurePosixPath(self.key).suffix

    @property
    def stem(self) -> str:
        """Name without its ending."""
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> ObjectPath:
        """Return the prefix that contains this path."""
        above = str(PurePosixPath(self.key).parent)
        return ObjectPath(self.root, "" if above == "." else above)

    def with_name(self, name: str) -> ObjectPath:
        """Return a path in the same prefix with another name."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> ObjectPath:
        """Return the path with another ending."""
        return self.with_name(self.stem + suffix)

    def resolve(self) -> ObjectPath:
        """Return this path: object stores have no links."""
        return self

    def read_bytes(self, max_bytes: int | None = None) -> bytes:
        """Return the whole content. Raises ConnectorError for more than ``max_bytes``."""
        return self.read_tagged(max_bytes)[0]

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the whole content as text."""
        return self.read_bytes().decode(encoding)

    def read_tagged(self, max_bytes: int | None = None) -> tuple[bytes, Tag]:
        """Return the whole content, and its tag. Raises ConnectorError for more than ``max_bytes``."""
        import obstore

        def fetch() -> tuple[bytes, Tag]:
            found = obstore.get(client(self.root), self.key)
            meta = found.meta
            if max_bytes is not None and meta["size"] > max_bytes:
                raise ConnectorError(f"{self} is larger than {max_bytes:,} bytes. Remove it.")
            return bytes(found.bytes()), Tag(meta.get("e_tag"), meta.get("version"))

        return self._fetched(fetch)

    def write_bytes(self, data: bytes) -> Tag:
        """Put the whole content, in one request or in parts that become visible together."""
        import obstore

        with self._translated_errors():
            found = obstore.put(client(self.root), self.key, data)
        return Tag(found.get("e_tag"), found.get("version"))

    def write_file(self, path: Path) -> Tag:
        """Put the content of a file, of which a few parts are in memory at a time."""
        import obstore

        part = max(PART_BYTES, -(-path.stat().st_size // MAX_PARTS))
        with self._translated_errors():
            found = obstore.put(client(self.root), self.key, path, chunk_size=part, max_concurrency=2)
        return Tag(found.get("e_tag"), found.get("version"))

    def read_into(self, file: BinaryIO) -> None:
        """Write the whole content into an empty file, of which a part is in memory at a time."""
        import obstore

        def fetch() -> None:
            file.seek(0)
            file.truncate()
            for part in obstore.get(client(self.root), self.key).stream(min_chunk_size=PART_BYTES):
                file.write(part)

        self._fetched(fetch)

    def copy_to(self, target: ObjectPath) -> None:
        """Copy within the bucket without a download; an existing target is replaced."""
        import obstore

        with self._translated_errors():
            obstore.copy(client(self.root), self.key, target.key)

    def create(self, data: bytes) -> None:
        """Put the object if there is none (``If-None-Match: *``); else raise FileExistsError."""
        self._put_if(data, "create")

    def replace_if(self, data: bytes, tag: Tag) -> None:
        """Replace the object if its content is that of ``tag`` (``If-Match``); else raise FileExistsError."""
        self._put_if(data, {name: value for name, value in tag._asdict().items() if value is not None})

    def open(self) -> BinaryIO | RangeReader:
        """Return a file that fetches what is read of it; a small one is fetched at once, in one request."""
        import obstore

        def fetch() -> tuple[int, bytes]:
            found = obstore.get(client(self.root), self.key, options={"range": (0, SMALL)})
            size = int(found.meta["size"])
            return size, bytes(found.bytes()) if size <= SMALL else b""

        size, content = self._fetched(fetch)
        return io.BytesIO(content) if size <= SMALL else RangeReader(self.read_range, size)

    def read_range(self, start: int, length: int) -> bytes:
        """Return ``length`` bytes of the content from ``start`` on."""
        import obstore

        return self._fetched(
            lambda: bytes(obstore.get_range(client(self.root), self.key, start=start, length=length))
        )

    def exists(self) -> bool:
        """Return whether there is an object of this key; a prefix does not count."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether an object lies below this prefix."""
        import obstore

        return self._fetched(lambda: any(obstore.list(client(self.root), self.key, chunk_size=1)))

    def stat(self) -> ObjectStat:
        """Return the size and time of the last write."""
        import obstore

        with self._translated_errors():
            meta = obstore.head(client(self.root), self.key)
        return ObjectStat(meta["size"], meta["last_modified"].timestamp())

    def listing(self) -> dict[str, ObjectStat]:
        """Return the objects directly below this prefix, by name."""
        return {PurePosixPath(meta["path"]).name: _stat_of(meta) for meta in self._list_level()["objects"]}

    def iterdir(self) -> Iterator[ObjectPath]:
        """Iterate over objects and prefixes directly below this prefix; empty where there are none."""
        found = self._list_level()
        keys = [*found["common_prefixes"], *(meta["path"] for meta in found["objects"])]
        return (ObjectPath(self.root, key.rstrip("/")) for key in sorted(keys))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield the results of :meth:`iterdir` whose name matches the pattern."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def below(self) -> list[ObjectPath]:
        """Return every object below this prefix, however deep."""
        return [self / name for name in self.tags_below()]

    def tags_below(self) -> dict[str, Tag]:
        """Return every object below this prefix by the rest of its key."""
        import obstore

        chunks = self._fetched(lambda: list(obstore.list(client(self.root), self.key)))
        start = len(self.key) + 1
        found = [meta for chunk in chunks for meta in chunk]
        return {meta["path"][start:]: Tag(meta.get("e_tag"), meta.get("version")) for meta in found}

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the object; a store does not say whether it was there."""
        import obstore

        try:
            with self._translated_errors():
                obstore.delete(client(self.root), self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_below(self, *, but: str = "") -> None:
        """Remove every object below this prefix, except those of the name ``but``."""
        import obstore

        keys = [path.key for path in self.below() if path.name != but]
        if keys:
            with self._translated_errors():
                obstore.delete(client(self.root), keys)

    def _list_level(self) -> Any:
        import obstore

        return self._fetched(lambda: obstore.list_with_delimiter(client(self.root), self.key or None))

    def _fetched(self, fetch: Callable[[], T]) -> T:
        """Return what ``fetch`` returns; an answer that broke off is asked for again.

        The client itself repeats requests that fail or are not answered, but none whose answer has begun.
        """
        from obstore import exceptions

        def attempt() -> T:
            for number in range(1, READS):
                try:
                    return fetch()
                except exceptions.BaseError as error:
                    if not broke_off(error):
                        raise
                    time.sleep(0.1 * number)
            return fetch()

        with self._translated_errors():
            return attempt()

    def _put_if(self, data: bytes, mode: Any) -> None:
        """Put on a condition. A retried request may find its own first try there, which counts as success."""
        import obstore

        try:
            with self._translated_errors():
                obstore.put(client(self.root), self.key, data, mode=mode, use_multipart=False)
        except FileExistsError:
            try:
                ours = self.read_bytes() == data
            except FileNotFoundError:
                ours = False
            if not ours:
                raise

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate the store's errors into OSError, without the request that their texts repeat."""
        from obstore import exceptions

        denied = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
        taken = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "no such object, or no such bucket", str(self)) from None
        except denied as error:
            raise PermissionError(errno.EACCES, f"permission denied{_cause(error)}", str(self)) from None
        except taken:
            raise FileExistsError(errno.EEXIST, "another writer was there first", str(self)) from None
        except exceptions.BaseError as error:
            if re.search(
                r"status code: 40[13]\b", str(error)
            ):  # obstore has no class for an answer without a body
                raise PermissionError(errno.EACCES, f"permission denied{_cause(error)}", str(self)) from None
            raise OSError(errno.EIO, f"the object store refuses{_cause(error)}", str(self)) from None


def broke_off(error: Exception) -> bool:
    """Return whether an error of obstore says that the answer to a request ended too early.

    obstore does not repeat a request for the body of an answer such as 404, though it may have repeated it
    before that answer came. Where no answer comes, it has repeated the request as often as it may.
    """
    text = str(error).partition("\n\n")[0]  # its details follow, with the number of repetitions
    in_body = "retries" not in text or "body error" in text
    return "HTTP error" in text and "status code" not in text and in_body


def _stat_of(meta: Any) -> ObjectStat:
    return ObjectStat(meta["size"], meta["last_modified"].timestamp())


def _cause(error: Exception) -> str:
    """Return the status and code of the store's error, such as " (403 Forbidden, AccessDenied)".

    The rest of its text repeats the request.
    """
    text = str(error)
    status = re.search(r"status code: (\d{3}[A-Za-z ]*)", text)
    code = re.search(r"<Code>([A-Za-z0-9]+)</Code>", text)
    words = [found.group(1).strip() for found in (status, code) if found]
    if not words:
        words = [text.partition("\n")[0][:160]]
    return f" ({', '.join(words)})"
