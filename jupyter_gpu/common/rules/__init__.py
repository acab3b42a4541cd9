"""Pure: environment variables that tell programs their GPUs and libraries, and what ``/proc`` tells of a process."""
