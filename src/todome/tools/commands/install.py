"""`todome install`: todome in the user interfaces of others."""

from pathlib import Path
from typing import Annotated

import typer

WEBUI = "The folder of AUTOMATIC1111's stable-diffusion-webui, Forge or reForge."
COMFYUI = "The folder of ComfyUI."
LINK = "Link to this copy of todome instead of copying it, to see changes of its code at once."
UNINSTALL = "Remove what was put there."


def install(
    webui: Annotated[Path | None, typer.Option(metavar="PATH", help=WEBUI)] = None,
    comfyui: Annotated[Path | None, typer.Option(metavar="PATH", help=COMFYUI)] = None,
    link: Annotated[bool, typer.Option("--link", help=LINK)] = False,
    uninstall: Annotated[bool, typer.Option("--uninstall", help=UNINSTALL)] = False,
) -> None:
    """Puts todome into AUTOMATIC1111's webui, Forge or ComfyUI, as an extension with a copy of todome in it.

    [dim]todome install --webui ~/stable-diffusion-webui[/dim]
    """
    from .. import install as installing

    given = [(installing.WEBUI, webui), (installing.COMFYUI, comfyui)]
    hosts = [(host, path.expanduser()) for host, path in given if path is not None]
    if not hosts:
        raise typer.BadParameter("Name the folder of one of them.", param_hint="--webui or --comfyui")
    if link and uninstall:
        raise typer.BadParameter("They exclude each other: use one of them.", param_hint="--link and --uninstall")
    for host, path in hosts:
        if uninstall:
            folder = installing.uninstall(host, path)
            left = ", but for files that are not todome's" if folder.exists() else ""
            typer.echo(f"Removed: {folder}{left}. Restart {host.title}.")
        else:
            folder = installing.install(host, path, link)
            typer.echo(f"{'Linked' if link else 'Copied'} to {folder}. Restart {host.title}.")
