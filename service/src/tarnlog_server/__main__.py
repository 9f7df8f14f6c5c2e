"""`python -m tarnlog_server`: the service with the settings of the environment."""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run the service; the exit code is that of `serve`."""
    gc.disable()  # loading 1,200 modules frees nothing, and a fifth of it was collections; `serve` enables it again
    from tarnlog_server.cli import serve

    return serve()


if __name__ == "__main__":
    sys.exit(main())
