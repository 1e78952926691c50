"""Identities of principals: an X25519 key for sessions and an Ed25519 key for signatures.

The one rule: private bytes leave an identity through :meth:`Identity.save` alone. They are never
printed, pickled, copied, compared or put into an error.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from safeser.errors import ConfigError
from safeser.gate.key_pairs import KeepsSecrets, PrivateKey, PublicKey, decode
from safeser.gate.values import check_principal
from safeser.identity.files import read_file, reason, refused, write_new
from safeser.identity.signing import SigningKey, VerifyingKey

__all__ = ["Identity", "public_text"]

_SECRET = rb"([A-Za-z0-9_-]{43})\n"
_IDENTITY_TEXT = re.compile(
    rb"safeser-identity-(?:1|(2))\n"
    rb"principal: ([A-Za-z0-9][A-Za-z0-9_.@-]{0,63})\n"
    rb"private: " + _SECRET + rb"(?(1)signing: " + _SECRET + rb")\Z"
)
_IDENTITY_MAX = 256  # the longest legal file has 201 bytes


class Identity(KeepsSecrets):
    """Who this process is: one principal and its private keys.

    :param signing: None for an identity of before there were signing keys, which signs nothing.
    """

    __slots__ = ("_principal", "_private", "_signing")

    def __init__(
        self, principal: str, private: PrivateKey, signing: SigningKey | None = None
    ) -> None:
        self._principal = check_principal(principal)
        self._private = private
        self._signing = signing

    @classmethod
    def generate(cls, principal: str) -> Identity:
        """Make new keys for *principal*; nothing is written until :meth:`save`."""
        return cls(principal, PrivateKey.generate(), SigningKey.generate())

    @property
    def principal(self) -> str:
        return self._principal

    @property
    def public(self) -> PublicKey:
        return self._private.public

    @property
    def verifying(self) -> VerifyingKey | None:
        """The public half of the signing key; None where there is none."""
        return None if self._signing is None else self._signing.public

    @property
    def public_text(self) -> str:
        """The public halves as a roster line begins, for the operator who lists them."""
        return public_text(self.public, self.verifying)

    def exchange(self, public: PublicKey) -> bytes:
        """Return the 32 secret bytes that this identity and the owner of *public* share."""
        return self._private.exchange(public)

    def sign(self, data: bytes) -> bytes:
        """Return this identity's Ed25519 signature over *data*, 64 bytes.

        *data* must begin with bytes that say what is signed: one key signs several things.

        :raises ConfigError: if the identity has no signing key.
        """
        self.require_verifying()
        assert self._signing is not None
        return self._signing.sign(data)

    def require_verifying(self) -> VerifyingKey:
        """Return the public half of the signing key.

        :raises ConfigError: if the identity has none.
        """
        if self._signing is None:
            raise ConfigError(
                f"the identity of {self.principal!r} has no signing key, which sealed submissions"
                " need",
                rule="config.signing",
                fix="Make a new key with 'safeser keys rotate', or with 'safeser keys new' where"
                " the roster is on another machine.",
            )
        return self._signing.public

    def __repr__(self) -> str:
        signing = "" if self.verifying is None else f", verifying={self.verifying.text!r}"
        return f"Identity(principal={self.principal!r}, public={self.public.text!r}{signing})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the keys to a new file at *path*, readable by its owner only, and sync it.

        Never replaces a file: an overwritten key cannot be brought back.
        """
        version = 1 if self._signing is None else 2
        lines = [f"safeser-identity-{version}", f"principal: {self.principal}"]
        lines.append(f"private: {self._private._secret_text()}")
        if self._signing is not None:
            lines.append(f"signing: {self._signing._secret_text()}")
        text = "\n".join((*lines, ""))
        try:
            write_new(Path(path), text.encode("ascii"), mode=0o600)
        except FileExistsError:
            raise refused(
                path, "exists already", fix="Choose another path; keys are never overwritten."
            ) from None
        except (OSError, ValueError) as error:
            raise refused(path, f"cannot be written: {reason(error)}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Identity:
        """Read the key file at *path*, which belongs to this user or root and is read by no other.

        Groups of this process may read it, and symbolic links of this user or root may lead to it,
        as with mounted secrets. A file of format 1 has no signing key.

        Raises :class:`ConfigError` that names the path and the fix, never the content.
        """
        data = read_file(
            path, "private", limit=_IDENTITY_MAX, rule="config.identity", make="safeser keys new"
        )
        match = _IDENTITY_TEXT.match(data)
        texts = [each.decode("ascii") for each in match.groups()[2:] if each] if match else []
        secrets = [raw for text in texts if (raw := decode(text)) is not None]
        if match is None or len(secrets) < len(texts):
            raise refused(
                path,
                "is not an identity file",
                fix="Make one with 'safeser keys new', or name the right file.",
            )
        return cls(
            match[2].decode("ascii"),
            PrivateKey.from_bytes(secrets[0]),
            *map(SigningKey.from_bytes, secrets[1:]),
        )


def public_text(public: PublicKey, verifying: VerifyingKey | None) -> str:
    """Return both public halves as one text, as a roster line begins."""
    return public.text if verifying is None else f"{public.text} {verifying.text}"
