"""What can go wrong in the command itself, and the exit status each ends with."""

EXIT_FAILURE = 125
EXIT_CANNOT_EXECUTE = 126
EXIT_NOT_FOUND = 127
EXIT_SIGNAL = 128  # plus the number of the signal
EXIT_USAGE = 2


class HakmemError(Exception):
    """One sentence for the user; the status the command exits with."""

    status = EXIT_FAILURE


class CannotPreloadError(HakmemError):
    """A program that no library can be preloaded into."""


class CannotExecuteError(HakmemError):
    status = EXIT_CANNOT_EXECUTE


class NotFoundError(HakmemError):
    status = EXIT_NOT_FOUND


class UsageError(HakmemError):
    status = EXIT_USAGE
