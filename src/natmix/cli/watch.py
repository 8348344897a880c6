"""``natmix watch``: running fits in the browser."""

import contextlib
import time
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from natmix.cli.errors import one_sentence


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The checkpoint folder of a fit, a run directory, or a folder with any of these in it.",
        ),
    ],
    port: Annotated[int, typer.Option(help="Port to listen at; 0: any that is free.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen at; one that others reach needs --allow-remote too.")
    ] = "127.0.0.1",
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Listen where other machines reach it, without encryption."),
    ] = False,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = False,
) -> None:
    """Show running fits in the browser; the page updates by itself. Ctrl-C ends it.

    It shows numbers alone, serves no file, and answers only who has the printed address. On another
    machine: ssh -L 8000:127.0.0.1:8000 MACHINE natmix watch DIR --port 8000
    """
    with one_sentence():
        from natmix.watch.folder import WatchedFolder
        from natmix.watch.server import WatchServer, is_loopback, serving

        if not folder.is_dir():
            raise NotADirectoryError(f"There is no folder {folder}.")
        if not is_loopback(host) and not allow_remote:
            raise ValueError(
                f"--host {host} is reached by other machines: add --allow-remote if that is meant, or use "
                "ssh -L."
            )
        if not 0 <= port <= 65_535:
            raise ValueError(f"--port is a number from 0 to 65535, got {port}.")
        try:
            server = WatchServer(WatchedFolder(folder), host, port)
        except OSError as error:
            raise ValueError(
                f"It cannot listen at {host}, port {port} ({error.strerror or error}); choose another --port "
                "or --host."
            ) from error
    if not is_loopback(host):
        typer.echo(
            "natmix: other machines reach this page, and it is not encrypted: whoever sees the address can "
            "read the numbers.",
            err=True,
        )
    typer.echo(f"Watching {folder} at {server.url}\nCtrl-C ends it.")
    if open_browser:
        webbrowser.open(server.url)
    thread = serving(server)
    with contextlib.suppress(KeyboardInterrupt):
        while thread.is_alive():
            time.sleep(0.5)
    server.shutdown()
    server.server_close()
