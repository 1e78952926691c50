"""docs/how-to/operations.md: every command on the page runs, and prints what the page says."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.audit import demo_day
from tests.pages import Page, matches, shell

PAGE = Page("how-to/operations.md")
IN_TABLE = re.findall(r"^\| .* \| `(safeser [^`]*)` \|$", PAGE.text, re.M)
FOLLOWING = "safeser audit tail audit -f"


@pytest.mark.slow
def test_each_command_prints_what_the_page_says(tmp_path: Path) -> None:
    demo_day.write(tmp_path)
    with shell(tmp_path, os.environ) as opened:
        for command in PAGE.commands:
            printed, code = opened.run(command.text, 100)
            assert matches(printed, command.printed), f"{command.text}\n" + "\n".join(printed)
            assert code in (0, 1), command.text  # 1: denied, or something was found
        ran = {command.text for command in PAGE.commands}
        for text in IN_TABLE:
            if text == FOLLOWING or text in ran:
                continue
            printed, code = opened.run(text.replace("KEY", demo_day.TASKS[0]), 100)
            assert code in (0, 1), f"{text}\n" + "\n".join(printed)
            assert not any("Traceback" in line for line in printed)
