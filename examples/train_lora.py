"""`todome train-lora` as a script, for `accelerate launch` to start on several GPUs.

accelerate launch --num_processes 2 examples/train_lora.py --data photos --size 512 -o photos.safetensors

It takes a model first, and the options that `todome train-lora --help` tells. In a script of your own:
`from todome.tools.training.lora import Recipe, train`.
"""

import sys

from todome.tools.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "train-lora")
    main()
