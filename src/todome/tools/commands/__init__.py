"""The commands of `todome`. A new one is a file with a function, and a line here."""

import errno
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ... import __version__
from ..extras import missing_package
from ..signals import RAISED, exit_status, handle_signals
from .app import serve
from .batch import batch
from .bench import bench
from .demo import demo
from .evaluate import evaluate
from .explain import explain
from .generate import generate
from .install import install
from .report import report
from .tune import tune
from .words import OnCluster, SeveralWords


class Commands(TyperGroup):
    """Group of commands that answers errors a user can put right with a sentence, and others with a traceback."""

    def invoke(self, ctx: Any) -> Any:
        before = handle_signals(RAISED)
        try:
            with warnings.catch_warnings():
                warnings.showwarning = show_note
                return super().invoke(ctx)
        except ModuleNotFoundError as error:
            typer.echo(missing_package(error), err=True)
        except KeyboardInterrupt as error:  # with what a command has to say about it
            typer.echo(" ".join(["Interrupted.", *map(str, error.args)]), err=True)
            raise typer.Exit(exit_status(error)) from None
        except BrokenPipeError:
            raise  # whoever read the output wants no more of it: typer ends without a word
        except (ImportError, MemoryError, OSError, ValueError) as error:
            typer.echo(f"Error: {sentence(error)}", err=True)
        finally:
            handle_signals(before)
        raise typer.Exit(1)


def sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "The disk is full. Files that were there before are as they were. Make room, and start again."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{str(error.filename)!r} cannot be used: {error.strerror}. Choose another, or mend it."
    return str(error)


def show_note(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Note: {message}", err=True)


app = typer.Typer(cls=Commands, add_completion=False, no_args_is_help=True, rich_markup_mode="rich")


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"todome {__version__}")
        raise typer.Exit


@app.callback()
def todome(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Diffusion models made faster by giving attention fewer tokens."""


app.command()(generate)
app.command(cls=OnCluster)(batch)
app.command()(demo)
app.command("app")(serve)
app.command("eval", cls=SeveralWords)(evaluate)
app.command()(report)
app.command()(explain)
app.command(cls=OnCluster)(tune)
app.command(cls=SeveralWords)(bench)
app.command()(install)
