"""What runs on the machine that has the GPUs: who may open them, who has them open, what they are."""
