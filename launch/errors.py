"""The exception for mistakes of the user."""


class UserError(Exception):
    """A mistake that the user can correct: shown as its message without a traceback; exit code 2.

    The message names the key, the value found, the values allowed and the fix.
    """
