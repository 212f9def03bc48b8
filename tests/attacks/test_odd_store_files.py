"""Whatever is in the place of a store's own files: it is named, and nothing happens to it."""

import os
import re
from pathlib import Path

import pytest
from support.stores import open_runtime

from attacks.odd_files import ODD_FILES, put
from hubbub.__main__ import main
from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.private_files import narrow

pytestmark = pytest.mark.anyio

PARTS = ("", "-wal", "-shm", "-journal", "-wal-copy", "-failed", "-lock")


@pytest.mark.spec("G-05", "G-06")
@pytest.mark.parametrize("kind", [kind for kind in ODD_FILES if kind != "huge"])
async def test_what_is_no_file_in_the_place_of_a_stores_file_is_named_and_left_alone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "store"
    async with open_runtime(folder):
        pass
    for part in PARTS:
        path = folder / f"hubbub.db{part}"
        before = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        put(kind, path)
        looked = (path.lstat(), os.stat("/dev/zero").st_mode)
        with pytest.raises(OperatorError, match=rf"(hubbub\.db{part}|/dev/zero): ") as found:
            async with open_runtime(folder):
                pass
        reason = str(found.value)
        assert re.search(r"is a (pipe|socket|device|link|folder),|Too many levels", reason), reason
        assert re.search("give another path$", reason)
        if part != "-lock":  # Which readers need not have.
            assert main(["runs", "--store", f"sqlite:{folder}"]) == 2
            assert reason in capsys.readouterr().err
        assert (path.lstat(), os.stat("/dev/zero").st_mode) == looked
        path.rmdir() if kind == "folder" else path.unlink()
        if before is not None:
            path.write_bytes(before)
    async with open_runtime(folder):
        pass


@pytest.mark.spec("G-06")
async def test_no_link_among_a_stores_files_has_the_mode_changed_of_what_it_leads_to(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    other.chmod(0o644)
    for part in PARTS[1:]:
        folder = tmp_path / f"store{part}"
        folder.mkdir()
        (folder / f"hubbub.db{part}").symlink_to(other)
        with pytest.raises(OperatorError, match="is a link"):
            async with open_runtime(folder):
                pass
        narrow([folder / f"hubbub.db{part}"])
    assert other.read_text() == "of somebody else"
    assert other.stat().st_mode & 0o777 == 0o644


@pytest.mark.spec("G-04")
@pytest.mark.parametrize("kind", ["fifo", "loop", "huge"])
async def test_a_place_for_contents_that_is_no_folder_is_refused_before_anything_is_accepted(
    kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    put(kind, folder / "blobs")
    with pytest.raises(OperatorError, match=r"/blobs: is no folder, .*; move it away"):
        async with open_runtime(folder):
            pass
