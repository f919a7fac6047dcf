"""``python -m shunter``: the same as the command ``shunter``."""

from __future__ import annotations

import sys

from shunter.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
