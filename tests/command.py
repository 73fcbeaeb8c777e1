"""`python -m tests.command WORDS...`: the command line, where the package is not installed."""

from dgmarl.cli import main

if __name__ == "__main__":
    main()
