"""The one error a user can cause: what was given, what is allowed, what to do, in one sentence."""


class UsageError(ValueError):
    """Bad input from a person. The command line prints the sentence and exits with code 2, without a traceback."""
