"""REST of the page's words in the language of the visitor."""

from __future__ import annotations

from jupyter_gpu.model import strict

from .api import ApiHandler


class TranslationHandler(ApiHandler):
    """The words of an installed language pack."""

    async def get(self) -> None:
        """Answer in the language of the other answers; English has no words."""
        strict.no_unknown(self.query(), ())
        self.answer({"locale": self.language.locale, "words": dict(self.language.words)})
