"""Token downsampling for AUTOMATIC1111's stable-diffusion-webui and Forge. All that reduces tokens is todome's."""
