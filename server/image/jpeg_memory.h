#ifndef BALLAST_SERVER_IMAGE_JPEG_MEMORY_H_
#define BALLAST_SERVER_IMAGE_JPEG_MEMORY_H_

// <cstdio> first: jpeglib.h uses FILE without including it.
#include <cstdio>

#include <jpeglib.h>

#include "server/image/scratch_arena.h"

namespace ballast {

// Makes libjpeg take the memory of every image from `arena`, which must outlive
// the images: libjpeg's own manager asks malloc afresh for each. What the
// decompressor took when it was created stays its own. Over the arena's limit
// libjpeg fails with JERR_OUT_OF_MEMORY.
//
// Between two images call ResetJpegMemory and then reset the arena.
void InstallJpegMemory(jpeg_decompress_struct* info, ScratchArena* arena);

// Ends the image, if one was begun, and forgets its tables, which would
// otherwise serve a next image that lacks its own.
void ResetJpegMemory(jpeg_decompress_struct* info);

}  // namespace ballast

#endif  // BALLAST_SERVER_IMAGE_JPEG_MEMORY_H_
