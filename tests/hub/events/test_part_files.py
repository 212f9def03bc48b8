"""Parts that are read from this machine: files, and nothing that never ends."""

import os
from pathlib import Path

import pytest

from hubbub import Document, Image
from hubbub.hub.errors import BadValue


@pytest.mark.spec("L-02", "G-01")
@pytest.mark.parametrize("place", ["/dev/zero", "/dev/null", "a\0b"])
def test_what_is_no_file_is_refused(place: str) -> None:
    if place.startswith("/dev") and not Path(place).exists():
        pytest.skip("there is no such device")
    for kind in (Image, Document):
        with pytest.raises(BadValue):
            kind.from_file(place)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BadValue, match="it is no file"):
        Image.from_file(tmp_path / "pipe.png")
