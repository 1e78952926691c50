"""The examples, as their reader runs them; that of a stock cluster is run where there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import needs

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str | Path, folder: Path) -> list[str]:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        **{"cwd": folder, "capture_output": True, "text": True, "timeout": 100, "check": False},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_untrusted_values(tmp_path):
    said = run("untrusted_values.py", tmp_path)
    reading = "Reading(place='roof', values=[21.5, 22.0])"
    assert said[0] == f"typed values: {reading} [[1.0, 0.0], [0.0, 1.0]]"
    assert said[1] == "a pickle of plain data: {'a': [1, 2]}"
    assert said[2].startswith("refused: posix:system is called")
    assert "this must not run" not in said  # as a line of its own it would have run


@needs("/dev/shm", Path("/dev/shm").is_dir())
def test_a_family_for_one_host(tmp_path):
    assert run("same_host.py", tmp_path) == [
        "one host: family shared, 0 bytes sent, sum 549755289600",
        "two hosts: family dask, 8,388,608 bytes sent, sum 549755289600",
    ]


SEALED = """
import safeser

def main():
    with safeser.Client(policy="sealed", n_workers=1) as client:
        assert client.seals
        print(client.submit(lambda x: x + 1, 1).result())
        print(sum(client.gather(client.map(lambda x: 2 * x, range(100), batch_size=30))))
        print(sorted(client.run(lambda: 1).values()))

if __name__ == "__main__":
    main()
"""


@pytest.mark.cluster
def test_sealed_calls_on_one_machine(tmp_path):
    program = tmp_path / "sealed.py"
    program.write_text(SEALED)
    assert run(program, tmp_path) == ["2", "9900", "[1]"]


@pytest.mark.cluster
def test_a_local_cluster(tmp_path):
    said = run("local_cluster.py", tmp_path)
    assert said[0].startswith("<Client: 'safeser://127.0.0.1:")
    assert said[1:3] == ["sum: 42", "array: 10000.0"]
    assert said[3].startswith("not here: worker could not send this value")
    assert [line.split(":")[0] for line in said[4:]] == ["  rule", "  fix", "goes on"]
