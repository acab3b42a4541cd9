"""The site of this server: what of the machine it sees and shares with others, and which GPUs it may use."""
