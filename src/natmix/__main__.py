"""``python -m natmix``: the command line, where the program itself is not on the path."""

from natmix.cli import app

if __name__ == "__main__":
    app(prog_name="natmix")
