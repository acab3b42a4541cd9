"""Files as the kubelet mounts those of ConfigMaps, Secrets and tokens."""

from pathlib import Path


class Mount:
    """A volume as the kubelet mounts it: every file is a link through ``..data``, which is swapped as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def put(self, **files: str | bytes) -> None:
        """All files of it from now on; ``_`` in a name stands for a dot."""
        self._count += 1
        version = self.folder / f"..{self._count}"
        version.mkdir(parents=True)
        for key, text in files.items():
            name = key.replace("_", ".")
            (version / name).write_bytes(text.encode() if isinstance(text, str) else text)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data", name))
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").replace(self.folder / "..data")
