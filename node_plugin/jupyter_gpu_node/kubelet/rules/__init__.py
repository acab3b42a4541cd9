"""Pure: slots, their owners, and the devices and files of a container with one."""
