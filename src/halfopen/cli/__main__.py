"""`python -m halfopen.cli` is `halfopen`."""

from __future__ import annotations

from halfopen.cli import main

if __name__ == "__main__":
    main()
