"""Where stable-diffusion-webui finds the extension."""

from pathlib import Path

from find_todome import load_todome

try:
    print(f"todome: using {load_todome(Path(__file__).parents[1] / 'vendor')}")
except ImportError as problem:
    print(f"todome: {problem}")
else:
    from todome_webui.script import TokenDownsampling, register  # noqa: F401 (the webui takes the script from here)

    register()
