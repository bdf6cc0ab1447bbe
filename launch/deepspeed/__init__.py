"""From a configuration of DeepSpeed, or arguments of Hugging Face's Trainer, to our flags."""
