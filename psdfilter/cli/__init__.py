"""The `psdfilter` command. Nothing here is imported before it is needed: `--help` knows no JAX."""

import sys


def main() -> None:
    """The entry point of the command."""
    try:
        import typer  # noqa: F401
    except ImportError:
        sys.exit("error: the command needs more packages: pip install 'psdfilter[cli]'")
    from psdfilter.cli.app import app

    app()
