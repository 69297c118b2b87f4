"""Python in processes of their own that need not import for seconds: each is a fork of one that waits.

What stands for `sys.executable` is a small program that passes everything on: its words, folder, variables and streams
to the one that waits, and the signals it gets to the fork. It ends as the fork ends. If it is killed, so is the fork;
and the one that waits ends with the tests.
"""

import functools
import gc
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

TORCH = "import torch"
DRAWING = "from todome.tools.pipelines import open_pipeline; open_pipeline(device='cpu')"  # and all that it imports
BY_DEFAULT = {  # what is passed on
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}
WAITING: list["subprocess.Popen[str]"] = []  # they end when nobody holds their stdin any more


def run_fresh(code: str, folder: Path = Path()) -> subprocess.CompletedProcess[str]:
    """Runs a script, in which every warning is an error, in a folder. Torch alone is loaded."""
    words = [python_after(TORCH), "-c", f"import warnings; warnings.simplefilter('error')\n{code}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def heed_ctrl_c() -> None:
    """For `preexec_fn`: a shell that starts tests in the background has them, and all they start, ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@functools.cache
def python_after(prepared: str) -> str:
    """What stands for `sys.executable`, for forks of a process in which a line of Python was run."""
    command = [sys.executable, __file__, "wait", prepared]
    waiting = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    WAITING.append(waiting)
    assert waiting.stdout is not None
    python = waiting.stdout.readline().strip()
    assert python, "It ended before it could wait."
    return python


def wait_for_commands(prepared: str) -> None:
    """Forks for everybody who knocks at the door, until the tests end."""
    exec(prepared, {})
    gc.freeze()  # a fork that looked for garbage in it, or cleared it away in the end, would copy all of it
    folder = Path(tempfile.mkdtemp())
    door = socket.socket(socket.AF_UNIX)
    door.bind(str(folder / "door"))
    door.listen()
    words = [sys.executable, "-S", __file__, "ask", str(folder / "door")]
    (folder / "python").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    (folder / "python").chmod(0o700)
    print(folder / "python", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended who look after a command
    while sys.stdin not in select.select([door, sys.stdin], [], [])[0]:
        asking = door.accept()[0]
        if not os.fork():
            door.close()
            look_after(asking)
        asking.close()
    shutil.rmtree(folder)
    os._exit(0)  # without clearing away all that was imported


def look_after(asking: socket.socket) -> None:
    """Starts a command, kills it if nobody waits for its end any more, and says how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked, streams, *_ = socket.recv_fds(asking, 2**20, 3)
    while not asked.endswith(b"\n"):
        asked += asking.recv(2**20)
    alive, held = os.pipe()  # one end of which the command alone has
    command = os.fork()
    if not command:
        asking.close()
        run_here(streams, **json.loads(asked))
    for descriptor in (held, 0, 1, 2, *streams):
        os.close(descriptor)
    asking.send(str(command).encode())
    left_alone = asking in select.select([asking, alive], [], [])[0]
    if left_alone:
        os.kill(command, signal.SIGKILL)
    ended = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    if not left_alone:
        asking.send(str(ended).encode())
    os._exit(0)


def run_here(streams: list[int], words: list[str], folder: str, variables: dict[str, str], ignored: list[int]) -> None:
    """Becomes what `python` would be with these words, and ends."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    for number, usual in BY_DEFAULT.items():
        signal.signal(number, signal.SIG_IGN if number in ignored else usual)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    option = words.pop(0) if words[0] in ("-c", "-m") else ""
    sys.argv, sys.path[0] = words, "" if option else str(Path(words[0]).parent)
    if option == "-c":
        exec(words[0], {"__name__": "__main__"})
    elif option == "-m":
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")
    sys.exit()


def ask(door: str, words: list[str]) -> None:
    """Passes everything on to a fork of the one that waits, and ends as it ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, BY_DEFAULT)  # until there is somebody to pass them on to
    ignored = [number for number in BY_DEFAULT if signal.getsignal(number) == signal.SIG_IGN]
    asked = {"words": words, "folder": os.getcwd(), "variables": {**os.environ}, "ignored": ignored}
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(door)
        socket.send_fds(line, [json.dumps(asked).encode() + b"\n"], [0, 1, 2])
        command = int(line.recv(20))
        for number in BY_DEFAULT:
            signal.signal(number, lambda number, _: os.kill(command, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BY_DEFAULT)
        for stream in (0, 1, 2):
            os.close(stream)
        ended = int(line.recv(20))
    if ended < 0:
        signal.signal(-ended, signal.SIG_DFL)
        os.kill(os.getpid(), -ended)
    os._exit(ended)


if __name__ == "__main__":
    what, given, *rest = sys.argv[1:]
    if what == "ask":
        ask(given, rest)
    else:
        wait_for_commands(given)
