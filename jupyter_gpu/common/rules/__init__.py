"""Pure: environment variables that name GPUs and libraries to programs, and the fields of ``/proc`` of a process."""
