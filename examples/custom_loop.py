"""A sampling loop of your own, without any scheduler: `patch.at` tells todome where the loop is.

Where a loop calls a scheduler of diffusers, `todome.apply(unet, scheduler=scheduler)` follows it by itself.

python examples/custom_loop.py "a red tulip" --stop 0.8
"""

import torch
from arguments import parsed, parser_for
from torch import Tensor

import todome
from todome.tools.pictures import write_png
from todome.tools.pipelines import open_pipeline


def denoised_a_step(latents: Tensor, predicted: Tensor, kind: str, now: Tensor, then: Tensor) -> Tensor:
    """A step of DDIM (arXiv 2010.02502, equation 12, without noise), from one share of signal to the next."""
    noise = predicted
    if kind == "v_prediction":
        noise = now.sqrt() * predicted + (1 - now).sqrt() * latents
    clean = (latents - (1 - now).sqrt() * noise) / now.sqrt()
    return then.sqrt() * clean + (1 - then).sqrt() * noise


@torch.no_grad()
def main() -> None:
    defaults = {"prompt": "a red tulip", "model": "todome-flowers", "size": "256x256", "steps": 25, "factor": "2"}
    parser = parser_for(__doc__, **defaults, out="custom-loop.png")
    parser.add_argument("--stop", type=float, default=0.8, help="the fraction of the steps after which it is dense")
    parser.add_argument("--guidance", type=float, default=3.0, help="how much the prompt counts")
    args = parsed(parser)
    pipe = open_pipeline(args.model, str(args.device))
    wanted, unwanted = pipe.encode_prompt(args.prompt, args.device, 1, True)
    words, kind = torch.cat([unwanted, wanted]), pipe.scheduler.config.prediction_type
    width, height = (side // pipe.vae_scale_factor for side in args.size)
    latents = torch.randn(1, 4, height, width, generator=torch.Generator().manual_seed(args.seed)).to(wanted)
    times = torch.linspace(1000, 0, args.steps + 1).round().long()[:-1] - 1
    signal = torch.cat([pipe.scheduler.alphas_cumprod[times], torch.ones(1)]).to(wanted)

    patch = todome.apply(pipe.unet, todome.Downsample(args.factor, stop=args.stop))
    for step, time in enumerate(times):
        patch.at(step, args.steps)  # before each step: which key is kept, and whether the window is open
        without, within = pipe.unet(torch.cat([latents] * 2), time, words).sample.chunk(2)
        predicted = without + args.guidance * (within - without)
        latents = denoised_a_step(latents, predicted, kind, signal[step], signal[step + 1])
    decoded = pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample
    picture = pipe.image_processor.postprocess(decoded)[0]
    write_png(picture, args.out, {"Title": args.prompt}, force=args.force)
    print(patch, f"Picture: {args.out}", sep="\n")


if __name__ == "__main__":
    main()
