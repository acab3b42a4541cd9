"""Certificates for TLS between two processes of one user, each of which knows the other's certificate before.

There is no authority: the certificate of the other end is the only one that is accepted, and no name is compared. It is
made for one connection, and its key never leaves the process that made it.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import os
import ssl
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext

_DAY = dt.timedelta(days=1)
"""Time that a certificate is valid before now: the clocks of two nodes differ."""
_TEXT = strict.text(4096)


@dataclass(frozen=True)
class Certificate:
    """A certificate of this process with its key."""

    der: bytes
    pem: bytes = field(repr=False)
    """The certificate and its secret key."""

    @property
    def text(self) -> str:
        """Return the certificate, without its key, as the other end reads it."""
        return base64.b64encode(self.der).decode()


def can_be_made() -> bool:
    """Tell whether the package that makes certificates is installed."""
    return find_spec("cryptography") is not None


def make(days: int = 1) -> Certificate:
    """Make a key and a certificate of it, for some days."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "jupyter-gpu")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + days * _DAY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(made.public_bytes(Encoding.DER), made.public_bytes(Encoding.PEM) + secret)


def context(own: Certificate, peer: bytes, *, server: bool) -> ssl.SSLContext:
    """Return the settings of TLS 1.3 with one peer; raises ssl.SSLError if its certificate is none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # the certificate itself is known
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=peer)
    if server:
        made.num_tickets = 0  # nothing is resumed, and a client that only sends would not read them
    memory = os.memfd_create("certificate", os.MFD_CLOEXEC)  # ssl reads files only; this one has no name
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(own.pem)
        made.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return made


def read_certificate(value: Any, field: str) -> bytes:
    """Return the certificate of a peer from its text; raises `strict.FieldError`."""
    try:
        return base64.b64decode(_TEXT(value, field), validate=True)
    except binascii.Error:
        raise strict.FieldError(gettext("%1 must be a certificate.", field)) from None
