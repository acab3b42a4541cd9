/* The size of the variables in a module's image. Pure, so that the stand-in driver can use it too. */
#ifndef GATE_IMAGE_H
#define GATE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/* Return the bytes of the variables in global memory of a cubin (an ELF file) or PTX; 0 for packed images. `size`: bytes of the
 * image; SIZE_MAX: as the image says. */
uint64_t image_globals(const void *image, size_t size);

#endif
