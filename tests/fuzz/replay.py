"""Run a parser on the input of a finding: python -m tests.fuzz.replay <target> '<input as the finding shows it>'."""

from __future__ import annotations

import sys

from tests.fuzz.harness import replay
from tests.fuzz.targets import ALL

if __name__ == "__main__":
    replay(ALL[sys.argv[1]], sys.argv[2])
    print("nothing is wrong with it")
