"""Where stable-diffusion-webui finds the extension."""

from todome_webui.core import explain_missing_core

problem = explain_missing_core()
if problem:
    print(f"todome: {problem}")
else:
    from todome_webui.script import TokenDownsampling, register  # noqa: F401 (the webui takes the script from here)

    register()
