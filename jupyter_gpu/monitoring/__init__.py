"""What is shown beside the view and the samples, to whoever asks for it: nothing here is taken while nobody looks."""
