"""REST about one subject: its limit with all fields, and what each comes to."""

from __future__ import annotations

from jupyter_gpu.model.limits.limit import Subject
from jupyter_gpu_hub.rules.subject_details import details

from .api import ApiHandler


class SubjectHandler(ApiHandler):
    """One user, group or namespace, the default, or the cap."""

    async def get(self) -> None:
        """Answer for any subject; ``kind``, ``name`` and ``hub`` are those of a limit."""
        self.need_reader()
        subject = self.site.home(Subject.from_json({key: value for key, value in self.query().items() if value}))
        self.answer({**details(subject, self.site.limit_rows()).to_json(), "timeZone": self.site.time_zone})
