"""python3 -m hakmem: the same as the command."""

import sys

from hakmem.cli import main

sys.exit(main(sys.argv[1:]))
