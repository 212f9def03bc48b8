"""``ShownParts``: images, documents and recordings as parts of a Chat Completions message.

* an image is an ``image_url``: its address, or a ``data:`` URL;
* a document is a ``file``, a recording an ``input_audio``: contents only, as the interface has no
  addresses there; WAV and MP3 alone are recordings;
* a ``tool`` message takes texts alone, so what a result shows comes in a message of the user's
  behind the results, which says whose it is;
* which of them a model takes, the service says (``Dialect.takes``), and of OpenAI's own models
  their names; what it does not take is named in words, where it would have stood;
* of a server at another address nothing is known, which those words say (``known``).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hubbub.agents.model import AnsweredCall, AssistantMessage, ContentPart
from hubbub.runtime.models.http.parts import base64_of, data_url, left_out, name_of

__all__ = ["ShownParts", "reads_texts_alone"]

FORMATS: Final = {"audio/wav": "wav", "audio/mpeg": "mp3"}
_text_models: Final = re.compile(
    r"(ft:)?(gpt-3\.5|gpt-4(-\d{4}.*|-32k.*|-1106-preview|-0125-preview)?$|o1-mini|o1-preview|o3-mini)"
).match
_hears: Final = re.compile(r"audio").search


def reads_texts_alone(model: str) -> bool:
    """Whether a model of OpenAI's sees nothing."""
    return _text_models(model) is not None


class ShownParts:
    """What one model is shown of the parts of one request."""

    __slots__ = ("_contents", "_known", "_takes")

    def __init__(
        self,
        contents: Mapping[str, bytes],
        takes: frozenset[str],
        model: str,
        *,
        is_own: bool,
        known: bool = True,
    ) -> None:
        if is_own and reads_texts_alone(model):
            takes = frozenset()
        elif is_own and not _hears(model):
            takes -= {"audio"}
        self._contents = contents
        self._known = known
        self._takes = takes

    def blocks(self, parts: Iterable[ContentPart]) -> list[dict[str, Any]]:
        """One block for each part, a text where the model does not take it."""
        return [self._block(part) or self._text(part) for part in parts]

    def of_results(self, turn: AssistantMessage) -> list[dict[str, Any]]:
        """What the results of a turn show, each behind a text that says whose it is."""
        blocks: list[dict[str, Any]] = []
        for call in turn.calls:
            shown = [block for part in call.parts if (block := self._block(part))]
            if shown:
                text = f"[shown by the result of {call.name}, call {call.id}]"
                blocks += [{"type": "text", "text": text}, *shown]
        return blocks

    def words_of(self, call: AnsweredCall) -> list[str]:
        """What stands in a result for the parts that the model does not take."""
        return [self._text(part)["text"] for part in call.parts if not self._block(part)]

    def _text(self, part: ContentPart) -> dict[str, Any]:
        return {
            "type": "text",
            "text": left_out(part, self._contents, self._takes, known=self._known),
        }

    def _block(self, part: ContentPart) -> dict[str, Any] | None:
        content = self._contents.get(part.digest)
        if part.kind not in self._takes or (content is None and not part.url):
            return None
        if part.kind == "image":
            url = part.url if content is None else data_url(part, content)
            return {"type": "image_url", "image_url": {"url": url}}
        if content is None:
            return None
        if part.kind == "document":
            file = {"filename": name_of(part), "file_data": data_url(part, content)}
            return {"type": "file", "file": file}
        if part.media_type not in FORMATS:
            return None
        audio = {"data": base64_of(content), "format": FORMATS[part.media_type]}
        return {"type": "input_audio", "input_audio": audio}
