"""Files that a user names for a task, told from names that stand for no files."""

import os


def named_files(data: str | None, *names: str) -> str | None:
    """What the user has named, written so that it is none of ``names``.

    A name that stands for other data than files is taken for a folder if there is one.

    Example:
        >>> named_files("lra_release", "listops"), named_files("listops", "listops")
        ('lra_release', None)
        >>> os.mkdir("listops")
        >>> named_files("listops", "listops")
        './listops'
    """
    if data not in names:
        return data
    return os.path.join(os.curdir, data) if os.path.exists(data) else None
