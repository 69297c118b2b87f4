"""DeepCache and todome together: one skips layers at most steps, the other gives the rest fewer keys.

Needs `pip install DeepCache`. Either may come first, and each can be taken off alone.

python examples/deepcache.py "white daisies" --interval 3
"""

import torch
from arguments import parsed, parser_for
from DeepCache import DeepCacheSDHelper

import todome
from todome.tools.pictures import write_png
from todome.tools.pipelines import open_pipeline


def main() -> None:
    parser = parser_for(
        __doc__,
        prompt="white daisies",
        model="todome-flowers",  # the embedded model
        size="256x256",
        steps=25,
        factor="2",
        out="deepcache.png",
    )
    parser.add_argument("--interval", type=int, default=3, help="run the whole model once in so many steps")
    args = parsed(parser)
    pipe = open_pipeline(args.model, str(args.device))
    helper = DeepCacheSDHelper(pipe=pipe)
    helper.set_params(cache_interval=args.interval, cache_branch_id=0)
    helper.enable()
    patch = todome.apply(pipe, todome.Downsample(args.factor))
    width, height = args.size
    asked = {"width": width, "height": height, "num_inference_steps": args.steps, "guidance_scale": 3.0}
    made = pipe(args.prompt, **asked, generator=torch.Generator().manual_seed(args.seed))
    helper.disable()
    write_png(made.images[0], args.out, {"Title": args.prompt}, force=args.force)
    print(patch, f"Picture: {args.out}", sep="\n")


if __name__ == "__main__":
    main()
