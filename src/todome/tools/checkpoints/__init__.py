"""Single files of weights as people have them: checkpoints of Stable Diffusion 1.x, 2.x and XL, LoRAs, VAEs.

header    the names and shapes in a .safetensors file, read without its weights
kinds     what such a file is
configs   the configs that diffusers needs to open a checkpoint, from the shapes in it
tokenizer CLIP's tokenizer, from the merges that come with todome
opening   a pipeline from a checkpoint; LoRAs and a VAE put into a pipeline
"""
