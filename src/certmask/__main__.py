"""``python -m certmask``: the command line."""

from certmask.cli import main

if __name__ == "__main__":
    main()
