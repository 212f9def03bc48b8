"""Contents of files on a disk that fails: what is said of it, and what is flushed all the same."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hubbub.hub.errors import StoreFailed
from hubbub.hub.virtual import InlineWorker
from hubbub.runtime.stores.sqlite.blobs import BlobFolder

pytestmark = pytest.mark.anyio

CONTENT = b"data"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def folder_at(root: Path) -> BlobFolder:
    folder = BlobFolder(root)
    folder.worker = InlineWorker()
    return folder


async def put(folder: BlobFolder, content: bytes = CONTENT) -> None:
    await folder.put("r", hashlib.sha256(content).hexdigest(), content)


class Flushes:
    """What is flushed, by its path; the call of this number fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: int) -> None:
        self.paths: list[str] = []
        self._calls = 0
        self._fails = fails
        self._flush = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, file: int) -> None:
        self._calls += 1
        if self._calls == self._fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._flush(file)
        self.paths.append(os.readlink(f"/proc/self/fd/{file}"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it tells what a descriptor is of")
@pytest.mark.parametrize("fails", [1, 2, 3, 4])
async def test_whichever_flush_fails_all_is_flushed_once_a_content_is_kept(
    fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "blobs"
    folder, flushes = folder_at(root), Flushes(monkeypatch, fails)
    with pytest.raises(StoreFailed, match="free some space"):
        await put(folder)
    await put(folder)
    place = root / DIGEST[:2] / DIGEST
    assert place.read_bytes() == CONTENT and [*place.parent.iterdir()] == [place]
    assert {str(place.parent), str(root), str(tmp_path)} <= set(flushes.paths)
    flushes.paths.clear()
    await put(folder)
    assert flushes.paths == [str(place.parent)], "what is known to be on the disk is left alone"


def a_file_above(root: Path) -> None:
    root.write_bytes(b"")


def a_file_of_that_name(root: Path) -> None:
    root.mkdir()
    (root / DIGEST[:2]).write_bytes(b"")


def a_folder_in_the_way(root: Path) -> None:
    (root / DIGEST[:2] / f"{DIGEST}.new").mkdir(parents=True)


@pytest.mark.parametrize("obstacle", [a_file_above, a_file_of_that_name, a_folder_in_the_way])
async def test_whatever_is_in_the_way_of_a_content_the_store_has_failed(
    obstacle: Callable[[Path], None], tmp_path: Path
) -> None:
    obstacle(tmp_path / "blobs")
    with pytest.raises(StoreFailed, match=r"make .*blobs a folder to write into"):
        await put(folder_at(tmp_path / "blobs"))


async def test_a_content_that_is_there_and_cannot_be_flushed_is_a_failure_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_at(tmp_path / "blobs")
    await put(folder)

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StoreFailed, match="Too many open files"):
        await put(folder)
    monkeypatch.undo()
    await put(folder)


@pytest.mark.spec("G-07")
@pytest.mark.parametrize("is_same_process", [True, False])
@pytest.mark.parametrize("damaged", [b"", b"dat", b"dirt", b"more data"])
async def test_sound_bytes_that_are_put_repair_a_damaged_content(
    damaged: bytes, is_same_process: bool, tmp_path: Path
) -> None:
    folder = folder_at(tmp_path / "blobs")
    await put(folder)
    await put(folder)
    place = folder.place(DIGEST)
    place.chmod(0o600)
    place.write_bytes(damaged)
    with pytest.raises(StoreFailed, match="has changed"):
        await folder.get("r", DIGEST)
    if not is_same_process:
        folder = folder_at(tmp_path / "blobs")
    await put(folder)
    assert await folder.get("r", DIGEST) == CONTENT


async def test_a_content_that_was_found_whole_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = folder_at(tmp_path / "blobs"), []

    def counted(place: Path) -> bytes:
        read.append(place)
        return place.read_bytes()

    monkeypatch.setattr("hubbub.runtime.stores.sqlite.blobs.read_regular", counted)
    for _ in range(5):
        await put(folder)
    assert read == [folder.place(DIGEST)]
