"""Makes the attack kit of this folder importable, whatever mode pytest imports tests in."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# Examples may be slow on a busy machine; that says nothing about the code.
settings.register_profile("families", deadline=None)
settings.load_profile("families")
