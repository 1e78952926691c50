"""The files of examples/deploy, read as what starts them reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

EXAMPLES = Path(__file__).parents[2] / "examples" / "deploy"


@pytest.fixture(scope="session")
def deploy() -> Path:
    return EXAMPLES


@pytest.fixture(scope="session")
def manifests() -> dict[str, dict[str, Any]]:
    """The objects of the Kubernetes files, by kind and name."""
    found = {}
    for path in sorted((EXAMPLES / "kubernetes").glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            name = each.get("metadata", {}).get("name", path.stem)
            found[f"{each['kind']}/{name}"] = each
    return found


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / "compose" / "compose.yaml").read_text())
