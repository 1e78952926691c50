"""Makes the attack kit of this folder importable, whatever mode pytest imports tests in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
