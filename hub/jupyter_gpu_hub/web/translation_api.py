"""REST of the page's words in the language of the browser."""

from __future__ import annotations

import asyncio

from jupyter_gpu.model import strict
from jupyter_gpu_hub.rules.translation import ENGLISH, choose, wanted
from jupyter_gpu_hub.state.language_packs import catalogues, read_words

from .api import ApiHandler


class TranslationHandler(ApiHandler):
    """The words of an installed language pack."""

    async def get(self) -> None:
        """Answer in the language that the header ``Accept-Language`` likes best; English has no words."""
        strict.no_unknown(self.query(), ())
        found = await asyncio.to_thread(catalogues)
        locale = choose(wanted(self.request.headers.get("Accept-Language", "")), found)
        words = {} if locale == ENGLISH else await asyncio.to_thread(read_words, found[locale])
        self.set_header("Vary", "Accept-Language")
        self.answer({"locale": locale, "words": words})
