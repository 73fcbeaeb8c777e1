"""Errors that are told to a person in one sentence, without a traceback."""


class UsageError(ValueError):
    """Bad input: what was given, what is allowed, what to do. The command line exits with code
    2."""


class RunError(RuntimeError):
    """Something failed that no input could have avoided: a full disk, a loss that became NaN. Exit
    code 1."""
