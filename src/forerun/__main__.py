"""`python -m forerun`: the same as the command `forerun`."""

from forerun.command import main

if __name__ == "__main__":
    main()
