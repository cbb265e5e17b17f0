#ifndef BALLAST_SERVER_IMAGE_JPEG_MEMORY_H_
#define BALLAST_SERVER_IMAGE_JPEG_MEMORY_H_

// <cstdio> first: jpeglib.h uses FILE without including it.
#include <cstdio>

#include <jpeglib.h>

#include "server/image/scratch_arena.h"

namespace ballast {

// Makes libjpeg allocate every image's memory from `arena`, which must outlive
// the images; libjpeg's own manager calls malloc for each image. Memory that
// the decompressor allocated when it was created is not affected. Beyond the
// arena's limit libjpeg fails with JERR_OUT_OF_MEMORY.
//
// Between two images call ResetJpegMemory and then reset the arena.
void InstallJpegMemory(jpeg_decompress_struct* info, ScratchArena* arena);

// Ends the image, if one was begun, and forgets its tables: a following image
// without its own tables would otherwise use them.
void ResetJpegMemory(jpeg_decompress_struct* info);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_JPEG_MEMORY_H_
