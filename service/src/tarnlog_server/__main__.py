"""`python -m tarnlog_server`: the service with the settings of the environment."""

from __future__ import annotations

import sys

from tarnlog_server.cli import serve

if __name__ == "__main__":
    sys.exit(serve())
