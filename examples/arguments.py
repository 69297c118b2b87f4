"""What every example takes from the command line. The rest of each is what you would write yourself."""

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from todome.tools.devices import reachable_device, torch_dtype
from todome.tools.files import check_out
from todome.tools.pipelines import Size


def parser_for(about: str | None, **defaults: Any) -> ArgumentParser:
    """A parser for the example that `about` describes. Defaults: of prompt, model, size, steps, factor and out."""
    first_line = (about or "").split("\n")[0]
    parser = ArgumentParser(description=first_line, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("prompt", nargs="?", help="what to draw")
    parser.add_argument("--model", help="the folder of a pipeline, or its id on the Hugging Face hub")
    parser.add_argument("--size", type=size, metavar="WIDTHxHEIGHT", help="in pixels")
    parser.add_argument("--steps", type=int, help="more are finer and slower")
    parser.add_argument("--factor", type=factor, help="keep 1 key in factor x factor: 2; 4,2 by level; or auto")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same picture")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps, ...")
    parser.add_argument("--out", type=Path, help="the file to write")
    parser.add_argument("--force", action="store_true", help="overwrite that file")
    parser.set_defaults(**defaults)
    return parser


def parsed(parser: ArgumentParser) -> Namespace:
    """The arguments, with a device and its dtype. What cannot work is refused before any work is done."""
    args = parser.parse_args()
    ending = Path(parser.get_default("out")).suffix
    if args.out.suffix.lower() != ending:
        parser.error(f"--out {args.out} must end in {ending}")
    try:
        check_out(args.out, ending=ending, force=args.force)
        args.device = reachable_device(args.device)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    args.dtype = torch_dtype("auto", args.device)
    return args


def size(text: str) -> Size:
    width, height = text.lower().split("x")
    return int(width), int(height)


def factor(text: str) -> Any:
    """One number for each level, or "auto"."""
    return text if text == "auto" else tuple(float(part) if "." in part else int(part) for part in text.split(","))
