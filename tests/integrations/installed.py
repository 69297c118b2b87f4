"""The integrations as `todome install` puts them into a host."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from todome.tools.install import Host, install


@functools.cache
def installed(host: Host) -> Path:
    """The folder of the integration, in a host that is nothing but the names it is recognised by."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    for names in host.marks:
        (folder / names[0]).mkdir()
    return install(host, folder)
