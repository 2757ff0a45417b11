"""python3 -m hakmem: the same as the command. The command that a wheel installs begins here too."""

import sys


def command() -> int:
    """The exit status."""
    try:
        from hakmem.cli import main

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        from hakmem.interruption import end

        end()


if __name__ == "__main__":
    sys.exit(command())
