"""Content hashes of local files are remembered for as long as the files are there."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from engine.storage.identity_cache import IdentityCache


def test_files_that_are_gone_are_forgotten_and_others_are_not_hashed_again(tmp_path: Path) -> None:
    hashed: list[str] = []

    def identify(path: str) -> str:
        hashed.append(Path(path).name)
        return "x"

    place = tmp_path / "identities.json"
    cache = IdentityCache(place, identify)
    files = [tmp_path / name for name in ("first", "picture", "second")]
    for file in files:
        file.write_text(file.name)
    first, picture, second = (str(file) for file in files)
    cache.identities([first])
    cache.identities([picture])  # of another use of the same cache
    assert json.loads(place.read_text()).keys() == {first, picture}
    files[0].unlink()
    cache.identities([second])
    assert json.loads(place.read_text()).keys() == {picture, second}
    assert cache.identities([picture, second]) == {picture: "x", second: "x"}
    assert hashed == ["first", "picture", "second"]


def test_a_file_that_is_replaced_by_one_of_the_same_size_and_time_is_hashed_again(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("old")
    cache = IdentityCache(tmp_path / "identities.json", lambda path: Path(path).read_text())
    assert cache.identities([str(file)]) == {str(file): "old"}
    before = file.stat()
    for text, write in (("new", file.write_text), ("mv!", _write_beside_and_move(file))):
        write(text)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert cache.identities([str(file)]) == {str(file): text}


def _write_beside_and_move(file: Path) -> Callable[[str], object]:
    def write(text: str) -> None:
        file.with_name("other").write_text(text)
        file.with_name("other").replace(file)

    return write


def test_a_forged_name_of_a_file_is_forgotten(tmp_path: Path) -> None:
    place, file = tmp_path / "identities.json", tmp_path / "a"
    file.write_text("a")
    place.write_text(json.dumps({"\0": {}, "x" * 10_000: 1}))
    IdentityCache(place, lambda _: "x").identities([str(file)])
    assert json.loads(place.read_text()).keys() == {str(file)}
