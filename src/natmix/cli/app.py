"""The command line: all commands."""

from typing import Annotated

import typer

from natmix._version import __version__
from natmix.cli.compare import compare
from natmix.cli.demo import demo
from natmix.cli.fit import fit
from natmix.cli.listing import list_
from natmix.cli.options import options
from natmix.cli.plot import plot
from natmix.cli.references import references
from natmix.cli.report import report
from natmix.cli.reproduce import reproduce
from natmix.cli.run import run
from natmix.cli.show import show
from natmix.cli.study import study
from natmix.cli.tune import tune
from natmix.cli.watch import watch
from natmix.kernels import native

app = typer.Typer(
    name="natmix",
    help="Variational inference with Gaussian mixtures by natural gradients.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command()(demo)
app.command()(fit)
app.command()(options)
app.command()(run)
app.command("list")(list_)
app.command()(show)
app.command()(watch)
app.command()(compare)
app.command()(plot)
app.command()(report)
app.command()(references)
app.add_typer(reproduce, name="reproduce")
app.add_typer(study, name="study")
app.command()(tune)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"natmix {__version__}")
        if not native.available():
            typer.echo("without native kernels: fits on a CPU are slower (docs/devices.md)")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Variational inference with Gaussian mixtures by natural gradients."""
