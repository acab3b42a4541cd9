"""Certificates and keys of one cluster, made on the spot by OpenSSL."""

import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.testbed.commands import run

DAYS = "365"
KEY = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


@dataclass(frozen=True)
class Identity:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """The certificate authority of a cluster; everything it signs lies in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity = Identity(folder / "ca.crt", folder / "ca.key")
        self.tokens = Identity(folder / "service-accounts.pub", folder / "service-accounts.key")
        """Signs the tokens of service accounts: no certificate, only a public key."""

    def make(self) -> None:
        """Make the authority and the signing key, unless they are there."""
        if self.tokens.certificate.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_key(self.identity.key)
        usage = "keyUsage=critical,digitalSignature,keyCertSign"
        flags = ("-subj", "/CN=jupyter-gpu-testbed", "-days", DAYS, "-addext", usage)
        run("openssl", "req", "-x509", "-new", "-key", self.identity.key, *flags, "-out", self.identity.certificate)
        _make_key(self.tokens.key)
        run("openssl", "pkey", "-in", self.tokens.key, "-pubout", "-out", self.tokens.certificate)

    def issue(self, name: str, user: str, groups: Sequence[str] = (), addresses: Sequence[str] = ()) -> Identity:
        """A certificate of this user, for clients and, with addresses (names or IPs), for servers; made once.

        `name` is that of its files.
        """
        made = Identity(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        if made.certificate.exists():
            return made
        subject = "".join(f"/O={_escaped(group)}" for group in groups) + f"/CN={_escaped(user)}"
        lines = ["extendedKeyUsage=clientAuth,serverAuth", "keyUsage=critical,digitalSignature"]
        if addresses:
            lines.append("subjectAltName=" + ",".join(f"{_kind(address)}:{address}" for address in addresses))
        _make_key(made.key)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            request, extensions, signed = (Path(scratch, each) for each in ("request", "extensions", "signed"))
            extensions.write_text("\n".join(lines))
            run("openssl", "req", "-new", "-key", made.key, "-utf8", "-subj", subject, "-out", request)
            signer = ("-CA", self.identity.certificate, "-CAkey", self.identity.key)
            flags = ("-set_serial", f"0x{secrets.token_hex(15)}", "-days", DAYS, "-extfile", extensions)
            run("openssl", "x509", "-req", "-in", request, *signer, *flags, "-out", signed)
            signed.replace(made.certificate)
        return made


def _make_key(path: Path) -> None:
    run("openssl", "genpkey", *KEY, "-out", path)
    path.chmod(0o600)


def _escaped(text: str) -> str:
    """Escape text for a subject on the command line, where a slash begins the next part and a plus joins two."""
    return "".join(f"\\{letter}" if letter in "/+\\" else letter for letter in text)


def _kind(address: str) -> str:
    return "IP" if address.replace(".", "").isdigit() else "DNS"
