"""The one exception for what a user can mend."""


class UserError(Exception):
    """A mistake the user can mend: shown as its message alone, without a traceback, exit code 2.

    The message names the key, the value found, the values allowed and the fix.
    """
