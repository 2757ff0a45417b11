"""python3 -m hakmem: the same as the command."""

import sys

try:
    from hakmem.cli import main

    status = main(sys.argv[1:])
except KeyboardInterrupt:
    from hakmem.interruption import end

    end()
sys.exit(status)
