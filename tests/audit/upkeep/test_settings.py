from __future__ import annotations

import pytest

from safeser.audit import AuditFiles
from safeser.errors import ConfigError


def test_texts_and_numbers():
    assert AuditFiles.parse({}) == AuditFiles()
    files = AuditFiles.parse(
        {
            "rotate-size": "1MiB",
            "rotate_age": "1h",
            "compress": False,
            "keep-age": "90d",
            "keep-size": "10GiB",
            "heads": ["syslog", "file:/mnt/heads"],
            "heads-every": 30,
        }
    )
    assert files == AuditFiles(
        rotate_size=1 << 20,
        rotate_age=3_600,
        compress=False,
        keep_age=90 * 86_400,
        keep_size=10 << 30,
        heads=("syslog", "file:/mnt/heads"),
        heads_every=30,
    )
    assert AuditFiles.parse({"heads": "syslog", "keep-age": None}).heads == ("syslog",)


@pytest.mark.parametrize(
    ("section", "match"),
    [
        ({"rotate": "1MiB"}, "rotate-size"),
        *(({"rotate-size": size}, "KiB") for size in ("1MB", True, -1, 1 << 60)),
        *(({"rotate-size": size}, "64KiB to 512MiB") for size in ("1KiB", "9TiB")),
        *(({"rotate-age": age}, "number and s") for age in ("1", 1.5)),
        ({"keep-size": "1MiB"}, "twice"),
        ({"heads-every": 0}, "second"),
        ({"compress": "yes"}, "true or false"),
        *(
            ({"heads": heads}, "file:PATH")
            for heads in (
                *(["http://x"], [1], ["file:/a\nb"], "file:", "command:", "command:'unclosed"),
                "syslog:host",
            )
        ),
        ({"x\x1b[2J": 1}, "not a setting"),
    ],
)
def test_what_is_not_known_is_refused(section, match):
    with pytest.raises(ConfigError) as raised:
        AuditFiles.parse(section)
    assert raised.value.rule == "config.audit-files"
    text = f"{raised.value} {raised.value.fix}"
    assert match in text
    assert text.isprintable()
