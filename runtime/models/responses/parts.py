"""``ShownItems``: images and documents as content of the Responses interface.

It reads both from addresses, too, and has nothing for recordings; results take them like messages.
What a model is not shown is named to it in words.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from hubbub.agents.model import ContentPart
from hubbub.runtime.models.http.parts import data_url, left_out, name_of
from hubbub.runtime.models.openai.parts import reads_texts_alone

__all__ = ["ShownItems"]

TAKES: Final = frozenset(("image", "document"))


class ShownItems:
    """What one model is shown of the parts of one request."""

    __slots__ = ("_contents", "_takes")

    def __init__(self, contents: Mapping[str, bytes], model: str) -> None:
        self._contents = contents
        self._takes = frozenset() if reads_texts_alone(model) else TAKES

    def content(self, parts: Iterable[ContentPart]) -> list[dict[str, Any]]:
        """One item for each part, a text where the model does not take it."""
        return [self._item(part) for part in parts]

    def _item(self, part: ContentPart) -> dict[str, Any]:
        content = self._contents.get(part.digest)
        if part.kind not in self._takes or (content is None and not part.url):
            return {"type": "input_text", "text": left_out(part, self._contents, self._takes)}
        if part.kind == "image":
            url = part.url if content is None else data_url(part, content)
            return {"type": "input_image", "detail": "auto", "image_url": url}
        if content is None:
            return {"type": "input_file", "file_url": part.url}
        return {
            "type": "input_file", "filename": name_of(part), "file_data": data_url(part, content),
        }  # fmt: skip
