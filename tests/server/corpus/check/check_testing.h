#ifndef BALLAST_TESTS_SERVER_CORPUS_CHECK_CHECK_TESTING_H_
#define BALLAST_TESTS_SERVER_CORPUS_CHECK_CHECK_TESTING_H_

#include <memory>
#include <string>
#include <vector>

#include "proto/config.pb.h"
#include "server/corpus/check/index_check.h"
#include "server/corpus/file_source.h"
#include "server/corpus/index/index_options.h"

namespace ballast {

// Options of building an index that read real image headers.
IndexOptions RealImageOptions();

// Writes `images` as samples "0000", "0001", … with one image each to
// `folder`/docs.tar and indexes them; each image must have a header.
v1::Source IndexImages(const std::string& folder,
                       const std::vector<std::string>& images);

// Opens the source of IndexImages.
std::unique_ptr<FileSource> OpenImages(const std::string& folder,
                                       const v1::Source& source);

// One thread, CheckScan, and units of `images` images.
CheckOptions ScanOptions(uint64_t images = 4);

// 560 damaged files of many kinds that still have a header.
std::vector<std::string> DamagedImages();

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_CORPUS_CHECK_CHECK_TESTING_H_
