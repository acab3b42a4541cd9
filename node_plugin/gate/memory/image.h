/* What an image of a module says of the memory of its variables. Pure, so that the stand-in driver can use it, too. */
#ifndef GATE_IMAGE_H
#define GATE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the variables in global memory of a cubin (an ELF file) or of PTX; 0 for what is packed otherwise. `size` is that
 * of the image, SIZE_MAX: as it says itself. */
uint64_t image_globals(const void *image, size_t size);

#endif
