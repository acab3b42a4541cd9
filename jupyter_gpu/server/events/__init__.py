"""Our Jupyter events: identity and schema."""

from __future__ import annotations

from pathlib import Path

SCHEMA_ID = "https://events.jupyter.org/jupyter_gpu/resize/v1"
"""Identity of the event of a completed resize."""
SCHEMA = Path(__file__).parent / "resize" / "v1.json"
