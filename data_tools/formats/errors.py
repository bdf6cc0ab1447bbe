"""The one exception for data that a user can mend."""


class DataError(ValueError):
    """Data, or options for them, that cannot be used: shown as the message alone, no traceback, exit code 2.

    The message names the file (and line), what was found, what was expected and the fix.
    """
