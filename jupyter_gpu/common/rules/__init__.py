"""Pure: environment variables that tell programs their GPUs and libraries."""
